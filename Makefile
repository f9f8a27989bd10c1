# Needs Python 3.11 or newer, make and git. Everything else goes into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q
ARGS ?=

.PHONY: run test check package package-test chaos bench clients compare peers docs pictures lock format clean

run: $(VENV)/.run
	@$(BIN)/hermes gateway run $(ARGS)

# More workers than the two cores have: half of the time tests wait for each other's processes.
# Those are hundreds, and each would compile the source anew in an environment that keeps no bytecode.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev
	@$(BIN)/pytest -n 4 --dist worksteal $(ARGS)

check: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/basedpyright --level error
	@$(BIN)/deptry .

package: $(VENV)/.dev
	@rm -rf dist
	@git rev-parse --short HEAD > gateway/COMMIT
	@$(BIN)/uv build -q; status=$$?; rm -f gateway/COMMIT; exit $$status
	@ls dist

package-test: $(VENV)/.dev
	@$(BIN)/pytest -m package -p no:randomly $(ARGS)

chaos: $(VENV)/.dev
	@$(BIN)/pytest -m chaos --timeout 3000 $(ARGS)

bench: $(VENV)/.dev
	@$(BIN)/python -m bench.store
	@$(BIN)/python -m bench.start
	@$(BIN)/python -m bench.gateway --big
	@$(BIN)/python -m bench.wire
	@$(BIN)/python -m bench.recall
	@$(BIN)/python -m bench.context
	@$(BIN)/python -m bench.text
	@$(BIN)/python -m bench.time
	@$(BIN)/python -m bench.walk
	@$(BIN)/python -m bench.dashboard
	@$(BIN)/python -m bench.team

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# Client libraries of others, each installed into a cache folder of its own; ARGS names some, else all.
clients: $(VENV)/.dev
	@$(BIN)/python -m bench.clients $(ARGS)

# This gateway and its peers in one run; they are installed into a cache folder.
compare: $(VENV)/.dev
	@$(BIN)/python -m bench.compare $(ARGS)

# Homes that other programs write themselves, for the tests of the import.
peers: $(VENV)/.dev
	@$(BIN)/python -m bench.peers

docs: $(VENV)/.dev
	@$(BIN)/python docs/generate.py

pictures: $(VENV)/.dev
	@PYTHONPATH=. $(BIN)/python docs/pictures.py
	@PICTURES=docs/pictures $(BIN)/pytest tests/browser -k readable

lock: $(VENV)/.dev
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 --extra all pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 --all-extras --group dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis

# The first word comes before the first work: making the folder alone takes seconds.
define venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hermes-gateway needs Python 3.11 or newer; name one with PYTHON=...")'
	@echo "Installing $(1) the first time"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
endef

# With the bytecode: an environment that keeps none would compile the source at each start, for a quarter of its time.
define code
	@$(PIP) install --no-deps -e .
	@$(BIN)/python -m compileall -q adapters gateway sessions
endef

$(VENV)/.run: requirements.lock pyproject.toml
	$(call venv,into $(VENV): about 40 s)
	@$(PIP) install --require-hashes -r requirements.lock
	$(call code)
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml
	$(call venv,what the tests need: about a minute)
	@$(PIP) install --require-hashes -r requirements-dev.lock
	$(call code)
	@touch $@ $(VENV)/.run
