"""Rows that an older version has written go on, so the stored form is fixed."""

import json
from typing import Any

import pytest
from sqlalchemy.engine.default import DefaultDialect

from sessions import codec
from sessions.db.schema import messages
from sessions.messages import Attachment, AttachmentKind, Button, Content
from sessions.records import CallOptions, InboxRow, Message, Role

PHOTO = Attachment(kind=AttachmentKind.IMAGE, name="p.jpg", mime="image/jpeg", platform="telegram", ref="f1")
TABLE = Attachment(kind=AttachmentKind.FILE, name="a.csv", mime="text/csv", size=3, path="/home/a.csv")
STORED_TABLE = '{"kind": "file", "name": "a.csv", "mime": "text/csv", "size": 3, "path": "/home/a.csv"}'
LIGHT = {"type": "function", "function": {"name": "light"}}


def came(**more: Any) -> InboxRow:
    return InboxRow(dedup_key="d", session_key="k", **more)


def read(stored: str) -> InboxRow:
    columns = {name: getattr(came(), name) for name in InboxRow.__slots__}
    return InboxRow.from_row({**columns, "body": json.loads(stored)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "row"),
    [
        (
            '{"messages": [{"content": "hi", "sender": "Ann"}], "options": {}}',
            came(messages=(Message(content="hi", sender="Ann"),)),
        ),
        (
            (
                '{"messages": [{"content": "see", "attachments": [{"kind": "image", "name": "p.jpg", "mime": "image/jpeg", '
                '"ref": "f1", "platform": "telegram"}]}], "options": {}}'
            ),
            came(messages=(Message(content="see", attachments=(PHOTO,)),)),
        ),
        (
            '{"messages": [{"role": "tool", "content": "on", "tool_call_id": "l"}], "options": {}}',
            came(messages=(Message(content="on", role=Role.TOOL, tool_call_id="l"),)),
        ),
        ('{"messages": [], "options": {"ask": 3}}', came(ask=3)),
        ('{"messages": [], "options": {"changed": "run_1"}}', came(changed="run_1")),
        (
            '{"messages": [], "options": {"model": "big", "layered": ["Be brief."], "sampling": {"temperature": 0.5}}}',
            came(options=CallOptions(model="big", layered=("Be brief.",), sampling={"temperature": 0.5})),
        ),
        ("{}", came()),
    ],
)
def test_what_came_in(stored: str, row: InboxRow):
    assert read(stored) == row
    assert codec.dump(row.body()) == stored


def test_what_came_in_of_older_versions():
    old = '{"messages": [{"role": "user", "content": "x", "sender": null, "attachments": [{"size": null, "kind": "file", "name": "a"}]}]}'
    (message,) = read(old).messages
    assert message == Message(content="x", attachments=(Attachment(kind=AttachmentKind.FILE, name="a"),))
    assert read('{"options": {"without_tools": ["light"]}}').options == CallOptions()


@pytest.mark.parametrize(
    ("stored", "content"),
    [
        ('{"text": "grüße"}', Content(text="grüße")),
        ('{"text": "x", "silent": true}', Content(text="x", silent=True)),
        (
            '{"text": "blue?", "buttons": [{"label": "yes", "data": "a:7:0"}]}',
            Content(text="blue?", buttons=(Button(label="yes", data="a:7:0"),)),
        ),
        (f'{{"attachments": [{STORED_TABLE}]}}', Content(attachments=(TABLE,))),
    ],
)
def test_what_goes_out(stored: str, content: Content):
    assert codec.shaped(Content, json.loads(stored)) == content
    assert codec.dump(codec.plain(Content, content)) == stored


def test_what_goes_out_of_older_versions():
    assert codec.shaped(Content, {"text": "", "attachments": [json.loads(STORED_TABLE)]}) == Content(
        attachments=(TABLE,)
    )
    assert codec.shaped(Content, {"text": "Which?", "buttons": []}) == Content(text="Which?")


def test_the_number_of_the_ask_goes_into_the_buttons_and_leaves_the_text_alone():
    card = Content(text="use {ask}?", buttons=(Button(label="{ask}", data="a:{ask}:y"),)).for_ask(7)
    assert card == Content(text="use {ask}?", buttons=(Button(label="{ask}", data="a:7:y"),))


def test_a_file_of_another_program_is_kept_as_far_as_it_is_understood():
    read_files = messages.c.attachments.type.result_processor(DefaultDialect(), None)
    assert read_files('[{"kind": "hologram", "name": "x", "colour": "red"}]') == (
        Attachment(kind=AttachmentKind.FILE, name="x"),
    )


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
