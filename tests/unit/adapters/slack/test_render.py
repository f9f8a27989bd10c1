"""What goes out to Slack, as it has to be written there."""

import json
import re

import pytest

from adapters.slack.render import render, without_pings
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
