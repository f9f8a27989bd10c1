"""Whose commands are carried out, and what is no command."""

import pytest

from gateway.chats.access import AccessRules
from gateway.texts import say
from sessions.messages import Attachment, AttachmentKind
from sessions.records import RunStatus
from tests.integration.gateway.intake_in_process import DM_KEY, GROUP, GROUP_KEY, OPEN, IntakeHarness

PHOTO = Attachment(kind=AttachmentKind.IMAGE, name="photo-5.jpg", mime="image/jpeg", ref="f")
ATTENTIVE = AccessRules(
    allowed_users=OPEN.allowed_users, first_allowed="7", allowed_chats=OPEN.allowed_chats, require_mention=False
)


@pytest.mark.parametrize(
    "said",
    [
        *("/new", "/new hello", "/reset", "/resume", "/forget 1", "/stop", "/approve", "/deny no"),
        *("/model huge", "/undo", "/retry"),
    ],
)
async def test_in_an_open_group_commands_that_change_something_stay_with_the_allowed(
    sqlite_intake: IntakeHarness, said: str
):
    await sqlite_intake.comes("hello", GROUP)
    number = sqlite_intake.waits(GROUP_KEY)
    await sqlite_intake.comes(said, GROUP, user="8")
    assert sqlite_intake.sent() == [say("people.not_allowed")]
    assert sqlite_intake.status(GROUP_KEY) is RunStatus.WAITING
    assert sqlite_intake.answer(number) is None


@pytest.mark.parametrize("said", ["/undo", "/undo 100"])
async def test_who_is_only_present_takes_nothing_back(sqlite_intake: IntakeHarness, said: str):
    await sqlite_intake.comes(said, GROUP, user="8")  # no run is at work
    assert sqlite_intake.sent() == [say("people.not_allowed")]


@pytest.mark.parametrize("said", ["/help", "/status", "/sessions", "/memory", "/usage", "/model", "/title mine"])
async def test_in_an_open_group_everybody_may_talk_and_ask(sqlite_intake: IntakeHarness, said: str):
    await sqlite_intake.comes("hello", GROUP, user="8")
    await sqlite_intake.comes(said, GROUP, user="8")
    assert sqlite_intake.keys() == [GROUP_KEY]
    assert say("people.not_allowed") not in sqlite_intake.sent()
    assert len(sqlite_intake.sent()) == 1


async def test_who_is_allowed_changes_the_model_in_a_group(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("/model huge", GROUP)
    assert "huge" in sqlite_intake.sent()[0]
    assert sqlite_intake.rows("SELECT count(*) FROM sessions WHERE model_config LIKE '%huge%' OR model = 'huge'") == [1]


@pytest.mark.parametrize("rules", [OPEN, ATTENTIVE], ids=["when mentioned", "always"])
@pytest.mark.parametrize("said", ["/weather Berlin", "/ban @spammer"])
async def test_a_command_of_no_name_that_is_none_of_ours_is_left_to_other_bots(
    sqlite_intake: IntakeHarness, rules: AccessRules, said: str
):
    sqlite_intake.rules = rules
    await sqlite_intake.comes(said, GROUP, user="8", for_any_bot=True)
    assert sqlite_intake.sent() == []
    assert sqlite_intake.keys() == []
    await sqlite_intake.comes("which command was that", GROUP)
    assert f"[Bob] {said}" in sqlite_intake.rows("SELECT body FROM inbox")[0]


async def test_a_path_is_no_mention(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("/etc/hosts is broken", GROUP, for_any_bot=True)
    assert (sqlite_intake.sent(), sqlite_intake.keys()) == ([], [])


@pytest.mark.parametrize(("said", "answer"), [("/status", "status.fresh"), ("/start", "people.group_hello")])
async def test_our_commands_are_ours_without_a_name(sqlite_intake: IntakeHarness, said: str, answer: str):
    await sqlite_intake.comes(said, GROUP, for_any_bot=True)
    assert sqlite_intake.sent() == [say(answer)]


async def test_an_unknown_command_for_us_gets_a_hint(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("/staus", GROUP)
    assert sqlite_intake.sent() == [say("command.unknown", command="/staus", near="/status")]


@pytest.mark.parametrize("for_any_bot", [False, True])
async def test_a_message_with_files_is_no_command(sqlite_intake: IntakeHarness, for_any_bot: bool):
    await sqlite_intake.comes("/new please tell me what this is", GROUP, attachments=(PHOTO,), for_any_bot=for_any_bot)
    assert sqlite_intake.sent() == []
    (body,) = sqlite_intake.rows("SELECT body FROM inbox")
    assert "/new please tell me what this is" in body
    assert "photo-5.jpg" in body


async def test_what_follows_new_is_the_first_message_of_the_new_conversation(intake: IntakeHarness):
    await intake.comes("hello")
    for _ in range(2):
        await intake.comes("/new plan a trip\nto Rome", dedup_key="new")
    assert intake.sent() == [say("session.new")]
    assert intake.keys() == [DM_KEY, DM_KEY]
    assert "plan a trip\\nto Rome" in intake.rows("SELECT body FROM inbox ORDER BY id")[-1]
    assert intake.rows("SELECT count(*) FROM sessions WHERE ended_at IS NULL") == [1]
    assert intake.status(DM_KEY) is RunStatus.RUNNING
