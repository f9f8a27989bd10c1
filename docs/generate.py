"""Writes docs/reference from the code: configuration, command line, HTTP, metrics, log events. `make docs` runs it; a test compares."""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from adapters.section import PlatformSection, Section

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
HEAD = "<!-- Written by `make docs` from the code. Do not edit. -->\n\n"


def configuration() -> str:
    from gateway.config.model import Config

    lines = [
        "# Configuration",
        "",
        "Every key of `config.yaml`. `hermes config show` prints what is in force and where it comes from.",
        "",
    ]
    example = (ROOT / "config.example.yaml").read_text()
    for name, field in Config.model_fields.items():
        lines += [f"## {name}", "", Config.descriptions()[name], ""]
        keys = _platform_keys(field.annotation) if name == "platforms" else _keys(name, field.annotation)
        lines += ["| key | default | meaning |", "|---|---|---|", *keys, ""]
        if found := re.search(rf"^{name}:.*\n(?:(?:[ #].*)?\n)*?(?=\n)", example, re.MULTILINE):
            lines += ["```yaml", found.group().rstrip(), "```", ""]
    return "\n".join(lines)


def _platform_keys(kind: Any) -> Iterator[str]:
    """What every platform has, once; then what only one of them has."""
    common = PlatformSection.model_fields
    rows = [
        f"| `platforms.PLATFORM.{key}` | {_default(field)} | {_meaning(PlatformSection, key)} |"
        for key, field in common.items()
    ]
    yield from rows
    section = _section_in(kind)
    for platform, field in section.model_fields.items() if section is not None else ():
        yield from (
            row
            for row in _keys(f"platforms.{platform}", field.annotation)
            if row.split("`")[1].split(".")[-1] not in common
        )


def _keys(path: str, kind: Any) -> Iterator[str]:
    model = _section_in(kind)
    if model is None:
        return
    path = f"{path}.NAME" if "dict" in str(kind) else f"{path}[]" if "list" in str(kind) else path
    for name, field in model.model_fields.items():
        below = f"{path}.{name}"
        if _section_in(field.annotation) is not None:
            yield from _keys(below, field.annotation)
        else:
            yield f"| `{below}` | {_default(field)} | {_meaning(model, name)} |"


def _meaning(section: type[Section], key: str) -> str:
    return " ".join(section.descriptions().get(key, "").split()).replace("|", "\\|")


def _section_in(kind: Any) -> type[Section] | None:
    for found in (kind, *getattr(kind, "__args__", ())):
        if isinstance(found, type) and issubclass(found, Section):
            return found
    return None


def _default(field: Any) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    plain = getattr(value, "get_secret_value", lambda: value)()
    shown = getattr(plain, "value", plain)
    if shown in ("", None, [], {}, ()):
        return "empty"
    return f"`{json.dumps(shown, ensure_ascii=False) if isinstance(shown, (bool, list)) else shown}`"


def command_line() -> str:
    from gateway.cli.main import hermes

    lines = [
        "# Command line",
        "",
        "Every command takes `--home DIR`. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.",
        "",
    ]
    for path, command in _commands("hermes", hermes):
        lines += [f"## {path}", "", *_about(command), ""]
    return "\n".join(lines)


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _commands(f"{path} {name}", below)


def _about(command: click.Command) -> Iterator[str]:
    yield " ".join((command.help or "").split())
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in {"home", "help"}]
    if arguments:
        yield ""
        yield "Takes " + ", ".join(f"`{each.make_metavar(click.Context(command))}`" for each in arguments) + "."
    if options:
        yield ""
        yield from (f"- `{', '.join([*each.opts, *each.secondary_opts])}`: {each.help or ''}" for each in options)


def http() -> str:
    from gateway.api.http.endpoint import EndpointAccess
    from gateway.api.http.server import ENDPOINTS

    lines = [
        "# HTTP",
        "",
        "A running gateway has the whole description at `/openapi.json`, and to read at `/docs`.",
        "",
    ]
    lines += ["| call | scope | what |", "|---|---|---|"]
    for endpoint in ENDPOINTS:
        scope = ", ".join(endpoint.scopes) or {
            EndpointAccess.OPEN: "open",
            EndpointAccess.HERE: "open on loopback",
            EndpointAccess.HOOK: "signed",
        }.get(endpoint.access, "key")
        lines.append(f"| `{endpoint.method} {endpoint.path}` | {scope} | {endpoint.summary} |")
    return "\n".join([*lines, ""])


def metrics() -> str:
    from gateway.observe.metrics import Metrics

    lines = [
        "# Metrics",
        "",
        "`GET /metrics` (scope `read`), for Prometheus. No label names a user, a chat, a session or a run.",
        "",
    ]
    lines += ["| name | kind | labels | meaning |", "|---|---|---|---|"]
    for name, kind, labels, about in sorted(described_metrics(Metrics())):
        lines.append(f"| `{name}` | {kind} | {', '.join(labels)} | {about} |")
    return "\n".join([*lines, ""])


def described_metrics(found: Any) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name as it is exposed, kind, labels and meaning of each metric of our own."""
    for value in vars(found).values():
        if hasattr(value, "_labelnames") and hasattr(value, "describe"):
            kind = value._type
            yield value._name + ("_total" if kind == "counter" else ""), kind, value._labelnames, value._documentation
    yield "hermes_build_info", "gauge", ("version",), "This version"


def log_events() -> str:
    lines = [
        "# Log events",
        "",
        "Names are stable. Message texts and secrets are in no event. `log.format: json` writes one object a line.",
        "",
    ]
    lines += ["| event | level | fields | written by |", "|---|---|---|---|"]
    rows: set[tuple[str, str, str, str]] = set()
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        tree = ast.parse(path.read_text())
        chosen = _chosen_texts(tree)
        for node in ast.walk(tree):
            rows |= {(*row, str(path.relative_to(ROOT))) for row in _events(node, chosen)}
    lines += [f"| `{event}` | {level} | {fields} | `{where}` |" for event, level, fields, where in sorted(rows)]
    return "\n".join([*lines, ""])


def _chosen_texts(tree: ast.AST) -> Mapping[str, Sequence[str]]:
    """Returns the variables that are one of two texts (`event = "a.b" if … else "c.d"`), with these texts."""
    chosen: dict[str, Sequence[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.IfExp() as value):
                chosen[name] = _texts(value, chosen)
            case _:
                pass
    return chosen


def _texts(value: ast.AST, chosen: Mapping[str, Sequence[str]]) -> Sequence[str]:
    match value:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name):
            return chosen.get(name, ())
        case ast.IfExp(body=one, orelse=other):
            return [*_texts(one, chosen), *_texts(other, chosen)]
        case _:
            return ()


def _events(node: ast.AST, chosen: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """Yields event, level and fields of a call of the logger."""
    match node:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Name(id="log"), attr="debug" | "info" | "warning" | "error" | "exception" as level
            ),
            args=[event, *_],
            keywords=keywords,
        ):
            fields = ", ".join(word.arg or "…" for word in keywords)
            for text in _texts(event, chosen):
                yield text, "error" if level == "exception" else level, fields
        case ast.Call(func=ast.Attribute(attr="_logged"), args=[ast.Constant(value=str(text)), *_]):  # as in the worker
            yield text, "warning", "error"
        case _:
            pass


BOARD = (
    ("Messages a minute", "sum by (platform, direction) (rate(hermes_messages_total[5m])) * 60", "short"),
    (
        "Seconds to an answer, p95",
        "histogram_quantile(0.95, sum by (le, platform) (rate(hermes_reply_seconds_bucket[10m])))",
        "s",
    ),
    ("Runs", "hermes_runs", "short"),
    ("Runs that ended", "sum by (reason) (rate(hermes_runs_ended_total[10m])) * 60", "short"),
    (
        "Model calls, p95",
        "histogram_quantile(0.95, sum by (le, model) (rate(hermes_model_request_seconds_bucket[10m])))",
        "s",
    ),
    ("Tokens a minute", "sum by (model, kind) (rate(hermes_model_tokens_total[10m])) * 60", "short"),
    ("Tools, p95", "histogram_quantile(0.95, sum by (le, tool) (rate(hermes_tool_seconds_bucket[10m])))", "s"),
    ("Oldest unread message", "hermes_inbox_oldest_seconds", "s"),
    ("Messages to send", "hermes_outbox_messages", "short"),
    ("Oldest message that is due", "hermes_outbox_oldest_due_seconds", "s"),
    ("Platforms", "hermes_platform_up", "short"),
    ("Seconds since a platform was heard", "time() - hermes_platform_last_success_timestamp_seconds", "s"),
    ("Event loop lag", "hermes_event_loop_lag_seconds", "s"),
    ("Configuration taken", "hermes_config_last_reload_successful", "short"),
)
"""Title, query and unit of each panel."""


def board() -> str:
    panels = [
        {
            "id": number,
            "title": title,
            "type": "timeseries",
            "datasource": {"type": "prometheus", "uid": "${source}"},
            "gridPos": {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "targets": [{"expr": query, "refId": "A"}],
        }
        for number, (title, query, unit) in enumerate(BOARD)
    ]
    source = {"name": "source", "type": "datasource", "query": "prometheus"}
    whole = {"title": "hermes-gateway", "schemaVersion": 39, "templating": {"list": [source]}, "panels": panels}
    return json.dumps(whole, indent=1) + "\n"


PAGES = {
    "configuration.md": configuration,
    "command-line.md": command_line,
    "http.md": http,
    "metrics.md": metrics,
    "log-events.md": log_events,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(HEAD + page())
    (ROOT / "docs" / "monitoring" / "grafana.json").write_text(board())
    sys.stderr.write(f"Written: {', '.join(PAGES)}\n")


if __name__ == "__main__":
    main()
