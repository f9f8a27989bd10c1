"""Each command, in chats of every state."""

import pytest
from sqlalchemy import Connection

from adapters.registry import title_of
from gateway.commands import COMMANDS, MENU, ChatAccount, ChatContext, execute, hint, parse
from gateway.texts import say
from sessions import audit, jobs, memory, runs, store, workers
from sessions.db import Database
from sessions.keys import SessionKey
from sessions.records import EndReason, InboxRow, Message, Role, RunStatus
from sessions.runs import ModelAnswer, Opening
from sessions.spending import DayLimit
from sessions.workers import WorkerRow, WorkerState
from tests.fakes.model_replies import call

KEY = "agent:main:telegram:dm"


class CommandHarness:
    """A chat on a database; its agent answers by the transitions alone."""

    def __init__(self, database: Database, clock) -> None:
        self.database, self.clock, self.count = database, clock, 0
        self.default_model = "big"
        self.account = ChatAccount()

    def chat(self, key: str = KEY) -> ChatContext:
        return ChatContext(
            key=SessionKey.parse(key),
            now=self.clock(),
            user="Ann",
            default_model=self.default_model,
            platform_title=title_of,
            account=self.account,
        )

    def send(self, text: str, key: str = KEY) -> str:
        parsed = parse(text)
        assert parsed is not None
        return self.database.write_now(execute, self.chat(key), parsed)

    def say(self, text: str) -> str:
        """Begin a run with it, or join the one that is active."""
        self.count += 1
        self.clock.tick(1_000)
        new = InboxRow(dedup_key=f"d{self.count}", session_key=KEY, messages=[Message(content=text)])
        return self.database.write_now(runs.accept, new, Opening(), self.clock()).run_id or ""

    def answered(self, text: str, answer: str = "yes") -> None:
        self.say(text)
        self.database.write_now(self._finish, answer)

    def _finish(self, conn: Connection, answer: str) -> None:
        run = self._claim(conn)
        assert runs.finish(
            conn, run, ModelAnswer(text=answer, input_tokens=1_200, output_tokens=34), self.clock(), step=0
        )

    def _claim(self, conn: Connection):
        run = runs.claim(conn, KEY, "me", Opening(), self.clock(), lease_ms=1_000)
        assert run is not None
        runs.take_in_new_messages(conn, run, self.clock())
        return run

    def park(self, kind: str = "question") -> None:
        self.say("do it")
        self.database.write_now(self._park, kind)

    def _park(self, conn: Connection, kind: str) -> None:
        run = self._claim(conn)
        (row,) = runs.answered(conn, run, ModelAnswer(text="", tool_calls=[call("files")]), self.clock(), step=0)
        assert runs.park(conn, run, row, "Which?", self.clock(), kind=kind)

    def call_tool(self) -> None:
        def work(conn: Connection) -> None:
            runs.answered(
                conn, self._claim(conn), ModelAnswer(text="", tool_calls=[call("files")]), self.clock(), step=0
            )

        self.database.write_now(work)

    @property
    def active(self):
        return self.database.read_now(runs.active, KEY)

    @property
    def session(self):
        return self.database.read_now(store.active, KEY)

    def transcript(self) -> list[str | None]:
        return [message.content for message in self.database.read_now(store.read_messages, self.session.id)]


@pytest.fixture
def harness(sqlite: Database, clock) -> CommandHarness:
    return CommandHarness(sqlite, clock)


# --- what is a command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["/etc/hosts is broken", "hello /new", "/", "// x", "/1", "/new/old", "/a.b", "1/2", ""]
)
def test_what_only_looks_like_a_command_is_for_the_agent(text: str):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/new", "new", ""),
        (" /NEW ", "new", ""),
        ("/title a\nb c ", "title", "a\nb c"),
        ("/deny  why not", "deny", "why not"),
    ],
)
def test_commands_and_their_arguments(text: str, name: str, argument: str):
    parsed = parse(text)
    assert parsed is not None
    assert (parsed.name, parsed.argument) == (name, argument)


def test_an_unknown_command_gets_a_hint():
    assert hint("nwe") == say("command.unknown", command="/nwe", near="/new")
    assert hint("xyzzy") == say("command.unknown_far", command="/xyzzy")


def test_reset_is_another_name_of_new_and_a_new_conversation_is_not_ended_again(harness: CommandHarness):
    assert harness.send("/reset") == say("session.is_first")
    harness.answered("hello")
    assert harness.send("/reset") == say("session.new")
    assert harness.send("/reset") == say("session.is_new")


def test_on_the_practice_model_another_one_is_not_said_to_answer(harness: CommandHarness):
    harness.default_model = "practice"
    harness.send("/model big")
    assert harness.send("/model") == say("model.practice_now", name="big")
    assert harness.send("/help").endswith(say("command.practice_help"))


def test_of_two_jobs_with_one_name_none_is_guessed(harness: CommandHarness):
    made: list[str] = []
    for _ in range(2):
        new = jobs.new_job(name="twice", schedule="1h", prompt="x", timezone="UTC", now=harness.clock())
        made.append(harness.database.write_now(jobs.create, new).id)
    asked = harness.send("/jobs delete twice")
    assert all(each in asked for each in made)
    assert harness.send(f"/jobs delete {made[0]}") == say("job.did_delete", name="twice")


def test_help_names_every_command(harness: CommandHarness):
    told = harness.send("/help")
    assert [line.split()[0] for line in told.splitlines()] == [f"/{command.name}" for command in COMMANDS]


def test_the_menu_is_short_and_what_ends_or_decides_is_for_the_allowed():
    assert len(MENU) <= 9
    guarded = {command.name for command in COMMANDS if command.for_allowed}
    assert guarded >= {"new", "resume", "forget", "stop", "approve", "deny"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_answers_in_a_chat_where_nothing_was_said(harness: CommandHarness, command):
    for text in (f"/{command.name}", f"/{command.name} 1"):
        assert isinstance(harness.send(text), str)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_answers_while_a_run_works(harness: CommandHarness, command):
    harness.say("hello")
    harness.call_tool()
    assert isinstance(harness.send(f"/{command.name}"), str)


# --- conversations -------------------------------------------------------------------------------------------------


def test_new_ends_the_run_and_the_conversation(harness: CommandHarness):
    run = harness.say("hello")
    old = harness.session.id
    assert harness.send("/new") == say("session.new")
    assert harness.database.read_now(runs.get, run).status is RunStatus.COMPLETED
    assert harness.database.read_now(store.get, old).end_reason is EndReason.USER
    harness.answered("afresh")
    assert harness.transcript() == ["afresh", "yes"]


def test_resume_goes_back_by_number_title_and_id(harness: CommandHarness):
    for text in ("about boats", "about trains"):
        harness.answered(text)
        harness.send("/new")
    boats = harness.database.read_now(store.recent, key=KEY)[-1].id
    listed = harness.send("/resume")
    assert listed.splitlines()[0] == say("session.resume_choose")
    assert listed.splitlines()[1].startswith("1. about trains")
    assert "You last said: “about boats”" in harness.send("/resume 2")
    assert harness.session.id == boats
    assert "about trains" in harness.send("/resume ABOUT T")
    assert "about boats" in harness.send(f"/resume {boats}")
    assert harness.send("/resume zebra") == say("session.resume_unknown", wanted="zebra")


def test_resume_with_nothing_to_go_back_to(harness: CommandHarness):
    harness.answered("hello")
    assert harness.send("/resume") == say("session.resume_none")


def test_sessions_and_title(harness: CommandHarness):
    assert harness.send("/sessions") == say("session.resume_none")
    harness.answered("hello there")
    assert "hello there" in harness.send("/sessions")
    assert harness.send("/title Boats") == say("session.titled", title="Boats")
    assert "Boats" in harness.send("/sessions")
    assert "(this one)" in harness.send("/sessions")
    assert harness.send("/title") == say("command.usage", usage="/title TEXT")


def test_sessions_of_other_chats_are_not_shown(harness: CommandHarness):
    harness.answered("private")
    other = f"{KEY}:8"
    assert harness.send("/sessions", other) == say("session.resume_none")
    assert harness.send(f"/resume {harness.session.id}", other) == say("session.resume_none")


def test_undo_takes_back_one_exchange_at_a_time(harness: CommandHarness):
    harness.answered("one")
    harness.answered("two")
    assert harness.send("/undo") == say("run.undone")
    assert harness.transcript() == ["one", "yes"]
    harness.send("/undo")
    assert harness.send("/undo") == say("run.nothing_to_undo")


def test_undo_says_which_notes_are_gone(harness: CommandHarness):
    harness.answered("I like tea")
    session = harness.session
    (said, _) = harness.database.read_now(store.last_messages, session.id, 2)
    at = {"session_id": session.id, "src": [said.id]}
    harness.database.write_now(memory.note, session.ns, "Likes tea", harness.clock(), **at)
    harness.answered("and cake")
    assert harness.send("/undo") == say("run.undone")
    assert harness.send("/undo") == f"{say('run.undone')} {say('run.undone_note')}\n- Likes tea"
    assert harness.send("/memory") == say("memory.none")


def test_undo_takes_back_several_at_once(harness: CommandHarness):
    for text in ("one", "two", "three"):
        harness.answered(text)
    assert harness.send("/undo 2") == say("run.undone_many", count=2)
    assert harness.transcript() == ["one", "yes"]
    assert harness.send("/undo two") == say("command.usage", usage="/undo or /undo 3")
    assert harness.send("/undo 9") == say("run.undone")


def test_retry_answers_the_last_message_again(harness: CommandHarness):
    assert harness.send("/retry") == say("run.nothing_to_retry")
    harness.answered("one", "bad")
    assert harness.send("/retry") == ""
    assert harness.active.status is RunStatus.RUNNING
    assert harness.send("/retry") == say("run.nothing_to_retry")
    harness.database.write_now(harness._finish, "better")
    assert harness.transcript() == ["one", "better"]


def test_an_answer_again_counts_as_a_message_of_the_day(harness: CommandHarness):
    harness.answered("one", "bad")
    harness.account = ChatAccount(who="ann", limit=DayLimit(messages=1))
    assert harness.send("/retry") == ""
    assert harness.active.who == "ann"
    harness.database.write_now(harness._finish, "better")
    assert harness.send("/retry") == say("limits.day_messages", limit="1")
    assert harness.transcript() == ["one", "better"]
    assert [row.who for row in harness.database.read_now(audit.listing)] == ["ann"]


# --- the work ------------------------------------------------------------------------------------------------------


def test_stop(harness: CommandHarness):
    assert harness.send("/stop") == say("run.nothing_to_stop")
    harness.say("hello")
    assert harness.send("/stop") == say("run.stopped")
    assert harness.active is None


def test_status_says_what_goes_on(harness: CommandHarness):
    assert harness.send("/status") == say("status.fresh")
    harness.say("hello")
    assert "thinking" in harness.send("/status")
    harness.call_tool()
    assert "using files" in harness.send("/status")
    harness.send("/stop")
    assert "“hello”" in harness.send("/status")
    harness.park()
    assert harness.send("/status") == say("ask.waiting", question="Which?")
    harness.send("/stop")
    harness.park("approval")
    # In a code block: Markdown would take marks of the command away.
    assert "```\nWhich?\n```" in harness.send("/status")


def test_the_owner_sees_in_the_status_what_is_wrong_with_the_gateway(harness: CommandHarness):
    harness.answered("hello")
    about = {"name": "w", "owner": "", "host": "h", "pid": 1, "version": "1", "role": "all", "started_at": 0}
    report = {"alerts": ["The changed configuration was refused."]}
    row = WorkerRow(**about, state=WorkerState.READY, last_seen=harness.clock(), report=report)
    harness.database.write_now(workers.report, row)
    assert harness.send("/status").splitlines()[-1] == "The changed configuration was refused."


def test_approve_and_deny_decide_what_waits(harness: CommandHarness):
    assert harness.send("/approve") == say("ask.nothing")
    harness.park()
    assert harness.send("/approve") == say("ask.nothing"), "a question is no approval"
    harness.send("/stop")
    for command, begins in (("/approve", "Approved by Ann"), ("/deny no way", "Denied by Ann")):
        harness.park("approval")
        assert harness.send(command).startswith(begins)
        assert harness.active.status is RunStatus.RUNNING
        assert harness.send(command) == say("ask.nothing")
        harness.send("/stop")


def test_model_is_chosen_for_this_conversation(harness: CommandHarness):
    assert "big" in harness.send("/model")
    assert "small" in harness.send("/model small")
    assert "small" in harness.send("/model")
    assert harness.session.chosen_model == "small"
    assert "big" in harness.send("/model default")
    assert harness.session.chosen_model is None


def test_usage(harness: CommandHarness):
    assert harness.send("/usage") == say("status.fresh")
    harness.answered("hello")
    assert ", 2 messages." in harness.send("/status")
    assert harness.send("/usage").startswith("This conversation: 2 messages, 0 tool calls, 1,200 tokens read")
    harness.database.write_now(
        store.append, harness.session.id, [Message(role=Role.ASSISTANT, tool_calls=[call("files")])], 0
    )
    assert harness.send("/usage").startswith("This conversation: 3 messages, 1 tool call, ")


def test_a_title_has_200_characters_at_most(harness: CommandHarness):
    assert harness.send(f"/title {'x' * 300}") == say("session.titled", title="x" * 200)
    assert harness.session.title == "x" * 200


def test_memory_and_forget(harness: CommandHarness):
    assert harness.send("/memory") == say("memory.none")
    assert harness.session is None  # looking opens none
    harness.database.write_now(memory.note, SessionKey.parse(KEY).namespace, "Likes tea", harness.clock())
    assert harness.send("/memory") == "#1 Likes tea (said on 15 Jun in this chat)\n\n/forget N removes the note #N."
    assert harness.send("/forget") == say("command.usage", usage="/forget N")
    assert harness.send("/forget tea") == say("command.usage", usage="/forget N")
    assert harness.send(f"/forget {'9' * 40}") == say("command.usage", usage="/forget N")
    assert harness.send("/forget 9") == say("memory.no_such", number="9")
    harness.database.write_now(memory.note, SessionKey.parse(KEY).namespace, "Likes cats", harness.clock())
    assert harness.send("/forget #2") == say("memory.forgotten", number=2, text="Likes cats")
    assert harness.send("/forget o1") == say("memory.forgotten", number=1, text="Likes tea")
    assert harness.send("/memory") == say("memory.none")


def test_memory_shows_since_when_and_from_which_words(harness: CommandHarness):
    harness.answered("we ripped Redis out today. Prices were stale.")
    here = harness.session
    [said, _] = harness.database.read_now(store.read_messages, here.id)
    known = {"session_id": here.id, "src": [said.id], "kind": "decision"}

    def write(conn: Connection) -> None:
        first = memory.note(conn, here.ns, "Redis is in use", 1, **{**known, "src": []})
        more = {"cause": "stale prices", "happened": "2025-06-15", "replaces": first.id}
        memory.note(conn, here.ns, "Removed Redis", harness.clock(), **known, **more)
        other = store.start(conn, SessionKey.parse("agent:main:cli:20250305_091523_a1b2c3d4"), 1, source="cli")
        [there] = store.append(conn, other.id, [Message(role=Role.USER, content="I like tea.")], 1_700_000_000_000)
        memory.note(conn, here.ns, "I like tea", 1, session_id=other.id, src=[there])
        phone = store.start(conn, SessionKey.parse("agent:main:whatsapp:dm:491"), 1, source="whatsapp")
        memory.note(conn, here.ns, "I gave up meat", 1_700_000_000_000, session_id=phone.id)

    harness.database.write_now(write)
    assert harness.send("/memory").splitlines()[:3] == [
        (
            "#2 Removed Redis, because stale prices (since 2025-06-15; said on 15 Jun in this chat: “we ripped Redis out today.”; "
            "before: Redis is in use)"
        ),
        "#3 I like tea (said on 14 Nov 2023 in the terminal)",
        "#4 I gave up meat (said on 14 Nov 2023 on WhatsApp)",
    ]
