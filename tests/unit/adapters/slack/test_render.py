"""What goes out to Slack, as it has to be written there."""

import json
import re

import pytest

from adapters.slack.app_manifest import COMMANDS
from adapters.slack.render import render, with_slacks_commands, without_pings
from sessions.keys import Address, ChatKind
from sessions.messages import Attachment, AttachmentKind, Outbound

WHERE = Address(platform="slack", kind=ChatKind.CHANNEL, chat_id="C1")
MENTION = re.compile(r"<\\?[!@#]|(?:&lt;|&#60;|&#x3c;)\\?[!@#]|<&#33;|<&excl;", re.IGNORECASE)
PINGS = [
    "<!channel>",
    r"<\!channel>",
    r"\<!channel>",
    r"\<\!channel>",
    "&#60;!channel>",
    "&#x3C;!channel>",
    "&lt;!channel>",
    "<&#33;here>",
    "<&excl;here>",
    "<&#x40;U66>",
    "&#60;&#33;here&#62;",
    "&amp;#60;!channel>",
    "`<!here>`",
    "```\n<!here>\n```",
    "| a |\n|---|\n| <\\!here> |",
    "# <\\!here>",
    "[<\\!here>](https://x.org)",
    "[x](<!here>)",
]


@pytest.mark.parametrize("text", PINGS)
def test_nobody_is_pinged_however_a_mention_is_spelt(text: str) -> None:
    (message,) = render(Outbound(address=WHERE, text=f"hello {text}"))
    for shown in (message["blocks"][0]["text"], message["text"].replace("&lt;", "").replace("&amp;", "&")):
        assert not MENTION.search(shown), shown
    assert not MENTION.search(without_pings(text))  # as a stream shows it


def test_the_comment_of_a_file_pings_nobody() -> None:
    file = Attachment(kind=AttachmentKind.FILE, name="a.txt", path="/a.txt")
    (message,) = render(Outbound(address=WHERE, text=r"see <\!channel>", attachments=(file,)))
    assert "<" not in json.dumps(message)


def test_code_stays_code() -> None:
    (message,) = render(Outbound(address=WHERE, text="`a << b && c <&d`"))
    assert message["blocks"][0]["text"] == "`a << b && c <&d`"


def test_commands_are_written_as_slacks_clients_send_them() -> None:
    said = (
        "/new begins anew; /resume goes back. “/jobs pause ID” (/help). Not /status/x, https://x.org/new or ~/stop.txt."
    )
    assert with_slacks_commands(said, "hermes", in_thread=False) == (
        "/hermes new begins anew; /hermes resume goes back. “/hermes jobs pause ID” (/hermes help). "
        "Not /status/x, https://x.org/new or ~/stop.txt."
    )
    assert with_slacks_commands("Send /resume.", "bot", in_thread=True) == "Send @bot /resume."
    for as_it_is in ("`GET /status`", "```\n/new\n```", "```\n/new", "@hermes /status", "/hermes new"):
        assert with_slacks_commands(as_it_is, "hermes", in_thread=True) == as_it_is


def test_all_commands_are_known() -> None:
    from gateway.commands import COMMANDS as OURS

    assert {name for command in OURS for name in (command.name, *command.aliases)} | {"start"} == COMMANDS
