"""Rows that an older version has written go on, so the stored form is fixed."""

import pytest

from sessions.inbox_body import InboxBody, InboxMessage
from sessions.messages import AttachmentKind
from sessions.records import CallOptions, Role
from sessions.stored_files import StoredFile

PHOTO = StoredFile(kind=AttachmentKind.IMAGE, name="p.jpg", mime="image/jpeg", platform="telegram", ref="f1")
LIGHT = {"type": "function", "function": {"name": "light"}}


@pytest.mark.parametrize(
    ("stored", "body"),
    [
        (
            '{"messages": [{"content": "hi", "sender": "Ann"}], "options": {}}',
            InboxBody(messages=(InboxMessage(content="hi", sender="Ann"),)),
        ),
        (
            (
                '{"messages": [{"content": "see", "attachments": [{"kind": "image", "name": "p.jpg", "mime": "image/jpeg", '
                '"platform": "telegram", "ref": "f1"}]}], "options": {}}'
            ),
            InboxBody(messages=(InboxMessage(content="see", attachments=(PHOTO,)),)),
        ),
        (
            '{"messages": [{"content": "on", "role": "tool", "tool_call_id": "l"}], "options": {}}',
            InboxBody(messages=(InboxMessage(content="on", role=Role.TOOL, tool_call_id="l"),)),
        ),
        ('{"messages": [], "options": {"ask": 3}}', InboxBody(ask=3)),
        ('{"messages": [], "options": {"changed": "run_1"}}', InboxBody(changed="run_1")),
        (
            '{"messages": [], "options": {"model": "big", "layered": ["Be brief."], "sampling": {"temperature": 0.5}}}',
            InboxBody(options=CallOptions(model="big", layered=("Be brief.",), sampling={"temperature": 0.5})),
        ),
    ],
)
def test_the_stored_form(stored: str, body: InboxBody):
    assert InboxBody.from_json(stored) == body
    assert body.to_json() == stored


def test_a_row_whose_text_is_in_the_journal_holds_nothing():
    assert InboxBody.from_json("") == InboxBody()


def test_rows_of_older_versions():
    old = '{"messages": [{"role": "user", "content": "x", "sender": null, "attachments": [{"size": null, "kind": "file", "name": "a"}]}]}'
    (message,) = InboxBody.from_json(old).messages
    assert message == InboxMessage(content="x", attachments=(StoredFile(name="a"),))
    assert InboxBody.from_json('{"options": {"without_tools": ["light"]}}').options == CallOptions()


def test_options_of_a_call_over_those_of_a_deployment():
    deployment = CallOptions(model="small", system_prompt="You are a pirate.")
    assert CallOptions(model="big").over(deployment) == CallOptions(model="big", system_prompt="You are a pirate.")


@pytest.mark.parametrize(
    ("choice", "forced"), [(None, False), ("auto", False), ("none", False), ("required", True), ({"type": "x"}, True)]
)
def test_whether_a_tool_of_the_caller_is_forced(choice: object, *, forced: bool):
    options = CallOptions(tools=(LIGHT,), sampling={} if choice is None else {"tool_choice": choice})
    assert options.forces_tool is forced
    assert options.tool_names == {"light"}


def test_a_file_of_another_program_is_kept_as_far_as_it_is_understood():
    assert StoredFile.from_stored({"kind": "hologram", "name": "x", "colour": "red"}) == StoredFile(name="x")
