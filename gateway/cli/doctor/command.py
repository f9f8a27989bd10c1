"""The command: runs every check, mends what is safe to mend, prints the findings."""

import asyncio
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

import click
from click.exceptions import Exit

from gateway.cli.base import Cli, pass_cli
from gateway.cli.database_access import existing_database
from gateway.cli.doctor import checks, remote_checks
from gateway.cli.doctor.checks import CheckTarget, Diagnosis, Severity, problem, warning
from gateway.cli.output import as_called_here, as_json
from gateway.cli.service_view import service_sources
from gateway.config.problems import BadConfig
from gateway.config.reading import read
from gateway.home import BadHome
from gateway.observe import logging
from gateway.texts import clean, counted
from sessions.clock import now_ms
from sessions.errors import ForeignHome, NewerSchema, OlderSchema, StateError

FAILED = 1
_INDENT = " " * 11
_COLOURS = {Severity.PROBLEM: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}

CHECKS: tuple[Callable[[CheckTarget], Iterator[Diagnosis]], ...] = (
    checks.permissions,
    checks.foreign,
    checks.database,
    checks.disk,
    checks.backup,
    checks.undelivered,
    checks.daemon,
    checks.port,
    checks.service,
    checks.installation,
    checks.time_zone,
)
ASYNC_CHECKS: tuple[Callable[[CheckTarget], AsyncIterator[Diagnosis]], ...] = (
    remote_checks.model,
    remote_checks.platforms,
)


@click.command()
@click.option("--fix", is_flag=True, help="Fix what can be fixed without harm.")
@click.option("--explain", is_flag=True, help="Also print what the runbook says about each finding.")
@click.option("--json", "wants_json", is_flag=True, help="Print one object.")
@pass_cli
def doctor(cli: Cli, fix: bool, explain: bool, wants_json: bool) -> None:
    """Look for everything that is wrong, and say what to do. Ends with 1 when there is a problem."""
    logging.configure_quiet()
    findings = _examine(cli)
    mended: list[Diagnosis] = []
    for finding in findings:
        if fix and finding.fix is not None:
            with suppress(OSError):  # it is found again, with its remedy
                finding.fix()
                mended.append(finding)
    findings = _examine(cli) if mended else findings
    findings.sort(key=lambda finding: finding.severity)
    if wants_json:
        click.echo(
            as_json(
                {"checks": _count(), "mended": [f.code for f in mended], "findings": [f.as_json() for f in findings]}
            )
        )
    else:
        click.echo("\n".join(_lines(findings, mended, fix=fix, explain=explain)))
    if any(finding.severity is Severity.PROBLEM for finding in findings):
        raise Exit(FAILED)


def _count() -> int:
    return len(CHECKS) + len(ASYNC_CHECKS) + 1  # and the configuration


def _examine(cli: Cli) -> list[Diagnosis]:
    findings: list[Diagnosis] = []
    loaded, database, look = None, None, "hermes config check"
    with ExitStack() as stack:
        try:
            # Without those about the home's mode, which a check of our own finds, with what mends it.
            loaded = read(replace(service_sources(cli.home, cli.environ), warnings=()))
        except BadConfig as bad:
            findings += [problem("config.invalid", each.headline, each.remedy or look) for each in bad.problems]
        else:
            findings += [warning("config.warning", each.headline, each.remedy or look) for each in loaded.warnings]
        try:
            database = stack.enter_context(existing_database(cli))
        except (StateError, BadHome, OSError) as error:
            # What belongs to somebody else is not damaged: `home.owner` says what to do.
            if not any(checks.not_ours(cli.home)):
                findings.append(_unusable(error))
        target = CheckTarget(home=cli.home, environ=cli.environ, loaded=loaded, database=database, now=now_ms())
        try:
            for check in CHECKS:
                findings += check(target)
            findings += asyncio.run(_run_async_checks(target))
        except StateError as error:
            findings.append(_unusable(error))
    return findings


async def _run_async_checks(target: CheckTarget) -> list[Diagnosis]:
    return [finding for check in ASYNC_CHECKS async for finding in check(target)]


def _unusable(error: Exception) -> Diagnosis:
    what = str(error).splitlines()[0]
    # Nothing is damaged, and the message says what to do.
    if isinstance(error, NewerSchema | OlderSchema | ForeignHome):
        what, _, remedy = what.partition(". ")
        return problem("database.version", what, remedy)
    return problem("database.unusable", what, "hermes restore FILE   with the last good backup")


def _lines(findings: Sequence[Diagnosis], mended: Sequence[Diagnosis], *, fix: bool, explain: bool) -> Iterator[str]:
    for finding in mended:
        yield f"  {click.style('fixed  ', fg='green')}  {finding.what}"
    for finding in findings:
        yield f"  {click.style(f'{finding.severity.name.lower():<7}', fg=_COLOURS[finding.severity])}  {clean(finding.what)}"
        yield f"           {as_called_here(clean(finding.remedy))}"
        if explain and (said := finding.explanation()):
            yield f"{textwrap.fill(said, 100, initial_indent=_INDENT, subsequent_indent=_INDENT)}\n"
    problems = sum(finding.severity is Severity.PROBLEM for finding in findings)
    warnings = sum(finding.severity is Severity.WARNING for finding in findings)
    fixable = sum(finding.fix is not None for finding in findings)
    more = as_called_here(f" `hermes doctor --fix` fixes {fixable} of them.") if fixable and not fix else ""
    found = f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}" if problems or warnings else "all is well"
    yield f"  {_count()} checks, {found}.{more}"
