"""Questions in a terminal. Esc goes back to the question before; an empty answer keeps what is shown."""

from collections.abc import Sequence
from dataclasses import dataclass

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


class GoBack(Exception):
    """Esc was pressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuItem:
    value: str
    text: str


def ask(question: str, *, default: str = "", secret: bool = False) -> str:
    """Asks for one line. Raises GoBack, KeyboardInterrupt, or EOFError."""
    shown = f"{question} [{'****' if secret else default}]: " if default else f"{question}: "
    session = PromptSession[str](key_bindings=_keys())
    return session.prompt(shown, is_password=secret).strip() or default


def choose(question: str, choices: Sequence[MenuItem], *, default: str) -> str:
    """Returns the value of the choice whose number is typed. Raises as `ask`."""
    click.echo(question)
    for number, choice in enumerate(choices, 1):
        mark = "   (Enter)" if choice.value == default else ""
        click.echo(f"  {number}  {choice.text}{mark}")
    usual = next((str(number) for number, choice in enumerate(choices, 1) if choice.value == default), "1")
    while True:
        said = ask("Number", default=usual)
        if said.isdecimal() and 0 < int(said) <= len(choices):
            return choices[int(said) - 1].value
        click.echo(f"  Type a number from 1 to {len(choices)}.")


def choose_several(question: str, choices: Sequence[MenuItem]) -> list[str]:
    """Returns the values of the numbers that are typed; none for an empty line. Raises as `ask`."""
    click.echo(question)
    for number, choice in enumerate(choices, 1):
        click.echo(f"  {number}  {choice.text}")
    while True:
        said = ask("Numbers, such as 1 3; empty: none").replace(",", " ").split()
        if all(word.isdecimal() and 0 < int(word) <= len(choices) for word in said):
            return [choices[int(word) - 1].value for word in dict.fromkeys(said)]
        click.echo(f"  Type numbers from 1 to {len(choices)}.")


def confirm(question: str, *, default: bool) -> bool:
    """Raises as `ask`. What is neither yes nor no, such as a key that was pasted too early, is asked again."""
    while True:
        said = ask(f"{question} {'[Y/n]' if default else '[y/N]'}").casefold()
        if said in {"", "y", "yes", "n", "no"}:
            return default if not said else said.startswith("y")
        click.echo("  Type y or n.")


def _keys() -> KeyBindings:
    keys = KeyBindings()

    # Eager, or prompt_toolkit waits half a second: an escape also begins the code of an arrow key.
    @keys.add("escape", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=GoBack())

    return keys
