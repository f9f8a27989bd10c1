"""Edits that change something, and those that only look like it."""

from dataclasses import replace

from gateway.texts import say
from sessions.messages import Attachment, AttachmentKind
from sessions.records import AskKind
from tests.integration.gateway.intake_in_process import DM_KEY, EDIT, GROUP, GROUP_KEY, Door

PHOTO = Attachment(kind=AttachmentKind.IMAGE, name="photo-5.jpg", mime="image/jpeg", ref="f")


async def test_an_edit_that_changes_nothing_is_none(door: Door):
    said = await door.comes("see https://example.org", attachments=(PHOTO,))
    door.waits(DM_KEY, AskKind.QUESTION)
    await door.comes("Monday")
    before = door.rows("SELECT count(*) FROM inbox")
    renewed = (replace(PHOTO, ref="another"),)
    await door.deliver(replace(said, kind=EDIT, dedup_key="preview", attachments=renewed))
    await door.comes("/stop")
    await door.deliver(replace(said, kind=EDIT, dedup_key="preview again"))
    assert door.sent() == [say("run.stopped")]
    assert [count + 1 for count in before] == door.rows("SELECT count(*) FROM inbox")


async def test_that_an_edit_came_late_is_not_said_while_a_run_is_there(door: Door):
    said = await door.comes("hello")
    door.waits(DM_KEY, AskKind.QUESTION)
    await door.deliver(replace(said, text="good day", kind=EDIT, dedup_key="waiting"))
    assert say("limits.edited_late") not in door.sent()
    await door.comes("/stop")
    await door.deliver(replace(said, text="good evening", kind=EDIT, dedup_key="late"))
    assert door.sent()[-1] == say("limits.edited_late")


async def test_a_mention_that_is_added_after_it_was_taken_along_is_a_message(door: Door):
    heard = await door.comes("what is 2+2", GROUP, user="8", mentioned=False)
    await door.comes("hi", GROUP)
    for _ in range(2):
        await door.deliver(replace(heard, kind=EDIT, dedup_key="added", mentioned=True))
    assert door.rows("SELECT count(*) FROM inbox") == [2]
    assert "[Bob] what is 2+2" in door.rows("SELECT body FROM inbox ORDER BY id")[-1]


async def test_an_edit_without_a_mention_after_it_was_taken_along_says_nothing_new(door: Door):
    heard = await door.comes("lunch at one", GROUP, user="8", mentioned=False)
    await door.comes("hi", GROUP)
    await door.deliver(replace(heard, text="lunch at two", kind=EDIT, dedup_key="edit"))
    await door.comes("when", GROUP)
    assert "lunch" not in door.rows("SELECT body FROM inbox ORDER BY id")[-1]


async def test_what_was_taken_along_is_not_heard_again(door: Door):
    await door.comes("lunch at one", GROUP, user="8", mentioned=False, message_id="90")
    await door.comes("hi", GROUP, dedup_key="asked")
    again = Door(door.database, door.clock)  # after a restart, what was not acknowledged comes once more
    again.number = 50
    await again.comes("lunch at one", GROUP, user="8", mentioned=False, message_id="90")
    await again.comes("hi", GROUP, dedup_key="asked")
    await again.comes("dessert at two", GROUP, user="8", mentioned=False)
    await again.comes("when", GROUP)
    newest = door.rows("SELECT body FROM inbox ORDER BY id")[-1]
    assert "lunch" not in newest
    assert "dessert at two" in newest


async def test_of_what_was_taken_along_no_words_are_kept(quick: Door):
    for number in range(40):
        await quick.comes("secret", GROUP, mentioned=False, message_id=f"{number}")
    await quick.comes("hi", GROUP)
    assert set(quick.rows("SELECT text || sender FROM overheard")) == {""}
    for number in range(40):
        await quick.comes("news", GROUP, mentioned=False, message_id=f"n{number}")
    assert quick.rows("SELECT count(*) FROM overheard WHERE text = 'news'") == [30]
    assert quick.keys() == [GROUP_KEY]
