"""Edits that change something, and those that only look like it."""

from dataclasses import replace

from gateway.texts import say
from sessions.messages import Attachment, AttachmentKind
from sessions.records import AskKind
from tests.integration.gateway.intake_in_process import DM_KEY, EDIT, GROUP, GROUP_KEY, IntakeHarness

PHOTO = Attachment(kind=AttachmentKind.IMAGE, name="photo-5.jpg", mime="image/jpeg", ref="f")


async def test_an_edit_that_changes_nothing_is_none(intake: IntakeHarness):
    said = await intake.comes("see https://example.org", attachments=(PHOTO,))
    intake.waits(DM_KEY, AskKind.QUESTION)
    await intake.comes("Monday")
    before = intake.rows("SELECT count(*) FROM inbox")
    renewed = (replace(PHOTO, ref="another"),)
    await intake.deliver(replace(said, kind=EDIT, dedup_key="preview", attachments=renewed))
    await intake.comes("/stop")
    await intake.deliver(replace(said, kind=EDIT, dedup_key="preview again"))
    assert intake.sent() == [say("run.stopped")]
    assert [count + 1 for count in before] == intake.rows("SELECT count(*) FROM inbox")


async def test_that_an_edit_came_late_is_not_said_while_a_run_is_there(intake: IntakeHarness):
    said = await intake.comes("hello")
    intake.waits(DM_KEY, AskKind.QUESTION)
    await intake.deliver(replace(said, text="good day", kind=EDIT, dedup_key="waiting"))
    assert say("limits.edited_late") not in intake.sent()
    await intake.comes("/stop")
    await intake.deliver(replace(said, text="good evening", kind=EDIT, dedup_key="late"))
    assert intake.sent()[-1] == say("limits.edited_late")


async def test_a_mention_that_is_added_after_it_was_taken_along_is_a_message(intake: IntakeHarness):
    heard = await intake.comes("what is 2+2", GROUP, user="8", mentioned=False)
    await intake.comes("hi", GROUP)
    for _ in range(2):
        await intake.deliver(replace(heard, kind=EDIT, dedup_key="added", mentioned=True))
    assert intake.rows("SELECT count(*) FROM inbox") == [2]
    assert "[Bob] what is 2+2" in intake.rows("SELECT body FROM inbox ORDER BY id")[-1]


async def test_an_edit_without_a_mention_after_it_was_taken_along_says_nothing_new(intake: IntakeHarness):
    heard = await intake.comes("lunch at one", GROUP, user="8", mentioned=False)
    await intake.comes("hi", GROUP)
    await intake.deliver(replace(heard, text="lunch at two", kind=EDIT, dedup_key="edit"))
    await intake.comes("when", GROUP)
    assert "lunch" not in intake.rows("SELECT body FROM inbox ORDER BY id")[-1]


async def test_what_was_taken_along_is_not_heard_again(intake: IntakeHarness):
    await intake.comes("lunch at one", GROUP, user="8", mentioned=False, message_id="90")
    await intake.comes("hi", GROUP, dedup_key="asked")
    again = IntakeHarness(intake.database, intake.clock)  # after a restart, what was not acknowledged comes once more
    again.number = 50
    await again.comes("lunch at one", GROUP, user="8", mentioned=False, message_id="90")
    await again.comes("hi", GROUP, dedup_key="asked")
    await again.comes("dessert at two", GROUP, user="8", mentioned=False)
    await again.comes("when", GROUP)
    newest = intake.rows("SELECT body FROM inbox ORDER BY id")[-1]
    assert "lunch" not in newest
    assert "dessert at two" in newest


async def test_of_what_was_taken_along_no_words_are_kept(sqlite_intake: IntakeHarness):
    for number in range(40):
        await sqlite_intake.comes("secret", GROUP, mentioned=False, message_id=f"{number}")
    await sqlite_intake.comes("hi", GROUP)
    assert set(sqlite_intake.rows("SELECT text || sender FROM overheard")) == {""}
    for number in range(40):
        await sqlite_intake.comes("news", GROUP, mentioned=False, message_id=f"n{number}")
    assert sqlite_intake.rows("SELECT count(*) FROM overheard WHERE text = 'news'") == [30]
    assert sqlite_intake.keys() == [GROUP_KEY]
