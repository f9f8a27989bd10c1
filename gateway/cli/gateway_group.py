"""`hermes gateway …`: the daemon, how it is, and its service. Nothing that a command needs is imported before it is called."""

from typing import Any

import click

from gateway.cli.lazy_commands import Later, LazyGroup

COMMANDS = {
    "run": Later(module="gateway.cli.gateway", name="run", help="The gateway, in the foreground."),
    "status": Later(module="gateway.cli.status", name="status", help="How the running gateway is."),
    "install": Later(
        module="gateway.cli.service", name="install", help="Make it a service of systemd, with a backup every night."
    ),
    "uninstall": Later(module="gateway.cli.service", name="uninstall", help="Take the service away. The home stays."),
    "start": Later(module="gateway.cli.service", name="start", help="Start the service."),
    "stop": Later(module="gateway.cli.service", name="stop", help="Stop the service."),
    "restart": Later(
        module="gateway.cli.service", name="restart", help="Check the configuration, then start the service anew."
    ),
}


@click.group(cls=LazyGroup, later=COMMANDS, invoke_without_command=True)
@click.pass_context
def gateway(ctx: click.Context) -> None:
    """Run the gateway that answers in your chats, and ask how it is."""
    if ctx.invoked_subcommand is None:
        run: Any = gateway.get_command(ctx, "run")
        with run.make_context("run", [], parent=ctx) as below:  # so that its options, the home among them, are settled
            run.invoke(below)
