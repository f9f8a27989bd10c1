# Needs Python 3.11 or newer, make and git. Everything else goes into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q
ARGS ?=

.PHONY: run test check chaos bench lock format clean

run: $(VENV)/.run
	@$(BIN)/hermes gateway run $(ARGS)

test: $(VENV)/.dev
	@$(BIN)/pytest -n 2 --dist worksteal $(ARGS)

check: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/basedpyright --level error
	@$(BIN)/deptry .

chaos: $(VENV)/.dev
	@$(BIN)/pytest -m chaos --timeout 3000 $(ARGS)

bench: $(VENV)/.dev
	@$(BIN)/python -m bench.store
	@$(BIN)/python -m bench.gateway --big
	@$(BIN)/python -m bench.wire

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(VENV)/.dev
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 --all-extras pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 --all-extras --group dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hermes-gateway needs Python 3.11 or newer; name one with PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/pip requirements.lock pyproject.toml
	@echo "Installing, about 40 s the first time"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/pip requirements-dev.lock pyproject.toml
	@echo "Installing what the tests need, about a minute the first time"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@$(PIP) install --no-deps -e .
	@touch $@ $(VENV)/.run
