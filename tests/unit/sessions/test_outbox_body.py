"""Rows that an older version has written go on, so the stored form is fixed."""

import pytest

from sessions.messages import Attachment, AttachmentKind, Button
from sessions.outbox_body import OutboxBody

FILE = Attachment(kind=AttachmentKind.FILE, name="a.csv", mime="text/csv", size=3, path="/home/a.csv")
STORED_FILE = '{"kind": "file", "name": "a.csv", "mime": "text/csv", "size": 3, "path": "/home/a.csv"}'


@pytest.mark.parametrize(
    ("stored", "body"),
    [
        ('{"text": "grüße"}', OutboxBody(text="grüße")),
        ('{"text": "x", "silent": true}', OutboxBody(text="x", silent=True)),
        ('{"closes": 7}', OutboxBody(closes=7)),
        (
            '{"text": "blue?", "buttons": [{"label": "yes", "data": "a:7:0"}]}',
            OutboxBody(text="blue?", buttons=(Button(label="yes", data="a:7:0"),)),
        ),
        (f'{{"text": "", "attachments": [{STORED_FILE}]}}', OutboxBody(attachments=(FILE,))),
    ],
)
def test_the_stored_form(stored: str, body: OutboxBody):
    assert OutboxBody.from_json(stored) == body
    assert body.to_json() == stored


def test_a_question_without_options_that_was_stored_with_an_empty_list_of_buttons():
    assert OutboxBody.from_json('{"text": "Which?", "buttons": []}') == OutboxBody(text="Which?")


def test_the_number_of_the_ask_goes_into_the_buttons_and_leaves_the_text_alone():
    card = OutboxBody(text="use {ask}?", buttons=(Button(label="{ask}", data="a:{ask}:y"),)).for_ask(7)
    assert card == OutboxBody(text="use {ask}?", buttons=(Button(label="{ask}", data="a:7:y"),))
