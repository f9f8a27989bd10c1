"""The command. Its modules are imported when it is called."""

import sys

import click
from click.exceptions import Exit

from gateway.cli.base import Cli, as_called_here, pass_cli
from gateway.cli.error_messages import Wrong


@click.command()
@click.argument("platform", required=False)
@click.option("--non-interactive", is_flag=True, help="Ask nothing: write what the environment names, and test it.")
@pass_cli
def setup(cli: Cli, platform: str | None, non_interactive: bool) -> None:
    """Ask for the model and the chats, test each answer, and write a commented configuration.

    It can be run again: what is there is shown, and only what is confirmed changes.

    With PLATFORM only that chat platform: telegram, discord, slack or whatsapp.
    """
    from adapters.registry import OUR_OWN, is_built
    from gateway.cli.setup.answers import Answers

    answers = Answers(home=cli.home, environ=cli.environ)
    if non_interactive:
        from gateway.cli.setup.flow import without_questions

        if not without_questions(answers):
            raise Exit(1)
        return
    if platform is not None and platform not in OUR_OWN:
        raise Wrong(
            f"There is no platform {platform!r}. There are: {', '.join(name for name in OUR_OWN if is_built(name))}."
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Wrong("Setup asks questions, so it needs a terminal. Without one: hermes setup --non-interactive")
    from gateway.cli.setup import flow

    try:
        if platform is None:
            flow.everything(answers)
        else:
            flow.run(answers, [flow.one_platform(platform)])
            click.echo("What was confirmed is saved; a running gateway has taken it over.")
    except (KeyboardInterrupt, EOFError):
        click.echo(as_called_here("\nWhat you have confirmed is saved. `hermes setup` goes on from here."))
