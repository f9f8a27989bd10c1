"""The bot comes into a group, is removed again, or blocked."""

from sqlalchemy import Connection

from gateway.chats.access import AccessRules
from gateway.texts import say
from sessions import outbox
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Content, InboundKind
from sessions.records import Route
from tests.integration.gateway.intake_in_process import DM, GROUP, GROUP_KEY, IntakeHarness

JOINED, LEFT = InboundKind.JOINED, InboundKind.LEFT
HELLO = say("people.group_hello")


async def test_it_greets_once_in_a_group_that_it_may_talk_in(intake: IntakeHarness):
    await intake.comes("", GROUP, user="66", kind_of=JOINED)
    await intake.comes("", GROUP, user="66", kind_of=JOINED)
    await intake.comes("/start", GROUP)
    assert intake.sent() == [HELLO]
    assert intake.rows("SELECT count(*) FROM inbox WHERE outcome IS NULL") == [0]
    assert intake.keys() == []


async def test_it_greets_where_somebody_who_is_allowed_brings_it(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("", GROUP, chat="-300", kind_of=JOINED)
    assert sqlite_intake.sent() == [HELLO]


async def test_a_group_of_strangers_hears_nothing_and_costs_nothing(sqlite_intake: IntakeHarness):
    sqlite_intake.rules = AccessRules(allowed_users=frozenset({"7"}))
    await sqlite_intake.comes("", GROUP, user="66", kind_of=JOINED)
    await sqlite_intake.comes("", GROUP, user="66", kind_of=LEFT)
    assert sqlite_intake.sent() == []
    assert (
        sqlite_intake.rows("SELECT count(*) FROM sessions") == sqlite_intake.rows("SELECT count(*) FROM inbox") == [0]
    )


async def test_nothing_waits_for_a_chat_that_is_gone(intake: IntakeHarness):
    def put(conn: Connection, kind: ChatKind, chat: str) -> None:
        route = Route(address=Address(platform=Platform.TELEGRAM, kind=kind, chat_id=chat))
        outbox.put(conn, route, Content(text=chat), intake.clock(), dedup_key=chat, session_key=GROUP_KEY)

    for kind, chat in ((GROUP, "-100"), (GROUP, "-200"), (DM, "7")):
        await intake.database.write(put, kind, chat)
    await intake.comes("", GROUP, user="66", kind_of=LEFT)
    await intake.comes("", DM, kind_of=LEFT)
    assert intake.rows("SELECT chat FROM outbox WHERE state = 'pending'") == ["-200"]
    assert "removed" in intake.rows("SELECT last_error FROM outbox WHERE state = 'dead'")[0]


async def test_what_is_forwarded_is_no_command_and_says_whose_it_is(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("/stop everything", forwarded_from="Bob [admin]")
    await sqlite_intake.comes("", forwarded_from="Bob", attachments=())
    bodies = sqlite_intake.rows("SELECT body FROM inbox ORDER BY id")
    assert "(forwarded from Bob ‹admin›)\\n/stop everything" in bodies[0]
    assert sqlite_intake.sent()[0] == say("limits.kind_unknown")


async def test_what_is_forwarded_and_overheard_keeps_its_origin(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("lunch at one", GROUP, mentioned=False, forwarded_from="Bob")
    await sqlite_intake.comes("when", GROUP)
    assert "[Ann] (forwarded from Bob)\\nlunch at one" in sqlite_intake.rows("SELECT body FROM inbox")[0]
