"""The six pages and their forms, as a client without JavaScript sees and sends them."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from sqlalchemy import update

from gateway.agent.tools.registry import Toolbox
from gateway.config.sections import PersonSection
from gateway.dashboard.pages import MESSAGES_SHOWN
from sessions import asks, audit, jobs, memory, outbox, people, runs, store
from sessions.db import schema
from sessions.keys import Address, ChatKind, SessionKey
from sessions.messages import Content
from sessions.records import Message, Role, Route, RunStatus, Source
from tests.app import give_tools
from tests.fakes.model_replies import Reply, call, calls
from tests.integration.api.serving import Gateway, gateway
from tests.integration.dashboard.visiting import multipart, signed_in, words

EVIL = '<script>alert(1)</script>\u202eevil\x1b[2J"><img src=x onerror=alert(1)>'
DM = Route(address=Address(platform="telegram", kind=ChatKind.DM, chat_id="111"))


def dangerous(html: str) -> Iterator[tuple[str, Any]]:
    """What of a page could run, or load from elsewhere."""
    parser, found = HTMLParser(), list[tuple[str, list[tuple[str, str | None]]]]()
    parser.handle_starttag = lambda tag, attrs: found.append((tag, attrs))  # type: ignore[method-assign]
    parser.feed(html)
    for tag, attrs in found:
        if tag in {"img", "iframe", "object", "svg", "style"} or (
            tag == "script" and attrs[0][1] != "/ui/static/live.js"
        ):
            yield tag, attrs
        yield from (
            (tag, each) for each in attrs if each[0].startswith("on") or (each[1] or "").startswith("javascript:")
        )


async def until(gw: Gateway, status: RunStatus) -> Any:
    async with asyncio.timeout(20):
        while not (found := await gw.database.read(runs.latest, 1, status=status)):
            await asyncio.sleep(0.01)
    return found[0]


async def test_a_conversation_is_begun_and_goes_on_here(home: Path, database_url: str) -> None:
    async with gateway(home, ["Hello Ann.", "Fine."], database_url=database_url) as gw:
        visitor = await signed_in(gw)
        begun = await visitor.post("/ui/conversations", text="hello", once="1")
        assert begun[0] == 303
        place = begun[2]["Location"]
        # The same form once more is the same message: nothing is said twice.
        assert (await visitor.post("/ui/conversations", text="hello", once="1"))[2]["Location"] == place
        await until(gw, RunStatus.COMPLETED)
        assert (await visitor.post(f"{place}/messages", text="and now?", once="2"))[0] == 303
        async with asyncio.timeout(20):
            while "Fine." not in (said := words(await visitor.page(place))):
                await asyncio.sleep(0.01)
        assert said.count("hello") >= 1
        assert "notes, summary and skills" in words(await visitor.page("/ui/memory"))
        assert [turn["content"].split("\n")[-1] for turn in gw.model.calls[-1].messages if turn["role"] == "user"] == [
            "hello",
            "and now?",
        ]


async def test_a_file_is_attached(home: Path) -> None:
    async with gateway(home, ["It is a list."]) as gw:
        visitor = await signed_in(gw)
        await visitor.page("/ui/")
        await visitor.post("/ui/nowhere")
        form = multipart(("csrf", visitor.csrf), ("text", "what is it?"), files=(("list.txt", "text/plain", b"tea"),))
        status, _, headers = await visitor.send("/ui/conversations", form, **{"Sec-Fetch-Site": "same-origin"})
        assert status == 303
        await until(gw, RunStatus.COMPLETED)
        assert "list.txt" in words(await visitor.page(headers["Location"]))
        assert "[file inbox/list.txt, text/plain, 1 kB]" in json.dumps(gw.model.calls[-1].body)
        # A file that comes before the form has shown where it is from is not read.
        form = multipart(files=(("first.txt", "text/plain", b"x"),))
        assert (await visitor.send("/ui/conversations", form))[0] == 403
        assert not list(home.rglob("first.txt"))


async def test_a_form_that_is_none_is_refused_and_a_long_one_not_kept(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        visitor = await signed_in(gw)
        await visitor.post("/ui/nowhere")
        ours = {"Sec-Fetch-Site": "same-origin"}
        for kind in ("multipart/form-data", "multipart/form-data; boundary=x"):
            status, text, _ = await visitor.send("/ui/conversations", b"none", **{**ours, "Content-Type": kind})
            assert (status, "cannot be read" in words(text)) == (400, True)
        many = multipart(("csrf", visitor.csrf), *((f"f{number}", "x" * 100_000) for number in range(4)))
        assert (await visitor.send("/ui/conversations", many, **ours))[0] == 413


async def test_an_admin_of_the_team_has_a_day_here_too(home: Path) -> None:
    ann = PersonSection(name="ann", scopes=["admin"], messages_per_day=2)
    goes_on = asyncio.Event()
    async with gateway(home, [Reply(text="slow", before=goes_on.wait), "With milk."]) as gw:
        gw.app.loaded = replace(gw.app.loaded, config=gw.app.config.model_copy(update={"people": [ann]}))
        visitor = await signed_in(gw, "ann")
        place = (await visitor.post("/ui/conversations", text="tea", once="1"))[2]["Location"]
        run = await until(gw, RunStatus.RUNNING)
        async with asyncio.timeout(20):
            while not gw.model.calls:
                await asyncio.sleep(0.01)
        assert (await visitor.post(f"/ui/runs/{run.id}/steer", text="with milk", once="2"))[0] == 303
        goes_on.set()
        await until(gw, RunStatus.COMPLETED)
        for path in ("/ui/conversations", f"{place}/messages"):
            status, text, headers = await visitor.post(path, text="more", once="3")
            assert (status, "2 messages for today are used" in words(text)) == (429, True)
            assert int(headers["Retry-After"]) > 0
        assert (await visitor.post("/ui/conversations", text="tea", once="1"))[2]["Location"] == place
        form = multipart(("csrf", visitor.csrf), ("text", "look"), files=(("refused.txt", "text/plain", b"x"),))
        assert (await visitor.send("/ui/conversations", form, **{"Sec-Fetch-Site": "same-origin"}))[0] == 429
        assert not list(home.rglob("refused.txt"))
        rows = await gw.database.read(audit.listing, action="limit")
        assert [(row.who, row.about) for row in rows] == [("ann", "messages_per_day")]


async def test_what_waits_is_answered_in_place(home: Path) -> None:
    ask = calls(call("ask_human", {"question": "Which colour?", "options": ["red", "blue"]}))
    async with gateway(home, [ask, "Blue."]) as gw:
        visitor = await signed_in(gw)
        assert "Nothing needs you." in words(await visitor.page("/ui/"))
        place = (await visitor.post("/ui/conversations", text="choose"))[2]["Location"]
        run = await until(gw, RunStatus.WAITING)
        now = await visitor.page("/ui/")
        assert "1 question waits for you." in words(now)
        found = re.search(r'name="ask" value="(\d+)"', now)
        assert found is not None
        for page in (place, f"/ui/runs/{run.id}"):
            assert "Which colour?" in words(await visitor.page(page))
        answered = await visitor.post(f"/ui/runs/{run.id}/answer", ask=found[1], text="blue", back="/ui/")
        assert (answered[0], answered[2]["Location"]) == (303, "/ui/")
        await until(gw, RunStatus.COMPLETED)
        late = await visitor.post(f"/ui/runs/{run.id}/answer", ask=found[1], text="red", back="/ui/")
        assert (late[0], "answered this already" in late[1]) == (409, True)
        assert (await gw.database.read(asks.get, int(found[1]))).answered_by == "ann"  # type: ignore[union-attr]
        # A form never sends the browser elsewhere.
        for back in ("https://evil.example/", "//evil.example/ui/", "/v1/models", "/ui/\r\nSet-Cookie: a=b"):
            answer = await visitor.post(f"/ui/runs/{run.id}/stop", back=back)
            assert answer[2]["Location"] == "/ui/"


async def test_an_approval_shows_the_very_command(home: Path) -> None:
    wanted = calls(call("process", {"action": "start", "command": "echo <b>\u202efdp"}))
    async with gateway(home, [wanted, "Done."]) as gw:
        give_tools(gw.app, Toolbox.of(["process"]).tools)
        await gw.chat("do it", "s")
        visitor = await signed_in(gw)
        assert "process: echo &lt;b&gt;\\u{202e}fdp</pre>" in await visitor.page("/ui/")


async def test_a_run_is_steered_and_stopped(home: Path) -> None:
    goes_on = asyncio.Event()
    async with gateway(home, [Reply(text="slow", before=goes_on.wait), "With milk."]) as gw:
        visitor = await signed_in(gw)
        await visitor.post("/ui/conversations", text="make tea")
        run = await until(gw, RunStatus.RUNNING)
        async with asyncio.timeout(20):
            while not gw.model.calls:
                await asyncio.sleep(0.01)
        assert "make tea" in words(await visitor.page("/ui/"))
        assert (await visitor.post(f"/ui/runs/{run.id}/steer", text="with milk", once="7"))[0] == 303
        goes_on.set()
        done = await until(gw, RunStatus.COMPLETED)
        timeline = words(await visitor.page(f"/ui/runs/{run.id}"))
        assert (done.id, "with milk" in timeline, "With milk." in timeline) == (run.id, True, True)
        assert (await visitor.post(f"/ui/runs/{run.id}/steer", text="late"))[0] == 409
        assert "With milk." not in words(await visitor.page("/ui/runs?status=error"))


async def test_an_old_run_of_a_long_session_has_its_timeline(home: Path) -> None:
    async with gateway(home, ["Oolong."]) as gw:
        visitor = await signed_in(gw)
        place = (await visitor.post("/ui/conversations", text="which tea?"))[2]["Location"]
        run = await until(gw, RunStatus.COMPLETED)
        later = [Message(role=Role.USER, content="x")] * (MESSAGES_SHOWN * 5)
        await gw.database.write(store.append, place.rsplit("/", 1)[1], later, gw.app.clock())
        assert "Oolong." in words(await visitor.page(f"/ui/runs/{run.id}"))


async def test_the_timeline_shows_when_a_run_was_taken_up_again(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        visitor = await signed_in(gw)
        place = (await visitor.post("/ui/conversations", text="which tea?"))[2]["Location"]
        session = await gw.database.read(store.get, place.rsplit("/", 1)[1])
        now = gw.app.clock()
        for moment in (now, now + 60_000, now + 120_000):  # nobody has ended what the one before began
            opening = gw.app.resets.opening(session.session_key)
            claim = partial(runs.claim, lease_ms=1_000)
            run = await gw.database.write(claim, session.session_key, "gone", opening, moment)
            assert run is not None
        page = words(await visitor.page(f"/ui/runs/{run.id}"))
        assert page.count("taken up again: the process that worked on it was gone") == 2
        assert "taken up again 2 times" in page


async def test_texts_of_others_are_never_markup(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        at = gw.app.clock()

        def write(conn: Any) -> str:
            key = SessionKey.parse("agent:main:telegram:group:-1")
            session = store.start(conn, key, at, source=Source.TELEGRAM, title=EVIL, user_id=EVIL)
            tool = {"id": "c", "type": "function", "function": {"name": EVIL, "arguments": EVIL}}
            said = [
                Message(role=Role.USER, content=EVIL, sender=EVIL),
                Message(
                    role=Role.ASSISTANT,
                    content=f"{EVIL} [x](javascript:alert(1)) ![p](http://x/y.png)",
                    tool_calls=[tool],
                ),
                Message(role=Role.TOOL, content=EVIL, tool_name=EVIL, tool_call_id="c"),
            ]
            store.append(conn, session.id, said, at)
            memory.note(conn, key.namespace, EVIL, at, kind="fact", cause=EVIL)
            jobs.create(conn, jobs.new_job(name=EVIL, prompt=EVIL, schedule="every 30m", timezone="UTC", now=at))
            people.request_access(conn, "telegram", "7", EVIL, DM.address, at)
            outbox.put(conn, DM, Content(text=EVIL), at, dedup_key="x", session_key="")
            outbox.give_up(conn, 1, EVIL)
            return session.id

        session_id = await gw.database.write(write)
        visitor = await signed_in(gw)
        for path in (
            "/ui/",
            "/ui/sessions",
            f"/ui/sessions/{session_id}",
            "/ui/sessions?q=evil",
            "/ui/time",
            "/ui/platforms",
            "/ui/memory?ns=agent:main:telegram:group:-1",
            f"/ui/sessions?q={EVIL[:20]}",
        ):
            html = await visitor.page(path)
            assert "alert(1)" in html or path == "/ui/", path
            assert not list(dangerous(html)), path
            assert not {"\x1b", "\u202e"} & set(html)


async def test_everything_else_that_a_form_does(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        at = gw.app.clock()

        def write(conn: Any) -> tuple[str, str, str, int]:
            outbox.put(conn, DM, Content(text="undelivered"), at, dedup_key="x", session_key="")
            outbox.put(conn, DM, Content(text="not wanted"), at, dedup_key="y", session_key="")
            for number in (1, 2):
                outbox.give_up(conn, number, "blocked")
            code = people.request_access(conn, "telegram", "7", "Bo", DM.address, at) or ""
            job = jobs.create(conn, jobs.new_job(name="tea", prompt="x", schedule="every 30m", timezone="UTC", now=at))
            conn.execute(update(schema.jobs).values(failures=3, told=True))
            note = memory.note(conn, "agent:main", "Prefers tea", at)
            session = store.start(conn, SessionKey.cli("c"), at, source=Source.CLI, title="earlier")
            store.append(conn, session.id, [Message(role=Role.USER, content="hello there")], at)
            return session.id, job.id, code, note.id

        session_id, job_id, code, note_id = await gw.database.write(write)
        visitor = await signed_in(gw)
        platforms = words(await visitor.page("/ui/platforms"))
        assert all(part in platforms for part in ("undelivered", "not wanted", "blocked", "Bo", "waits"))
        troubles = words(await visitor.page("/ui/"))
        assert "2 messages were not delivered." in troubles
        assert "One person waits to be let in." in troubles
        assert "The job “tea” has failed 3 times in a row" in troubles
        await visitor.post("/ui/outbox/1/send", back="/ui/platforms")
        await visitor.post("/ui/outbox/2/drop", back="/ui/platforms")
        assert await gw.database.read(outbox.dead_letters) == []
        assert (await visitor.post("/ui/outbox/2/send"))[0] == 404
        assert (await visitor.post("/ui/people/approve", code="WRONG"))[0] == 404
        await visitor.post("/ui/people/approve", code=code)
        assert [person.user_id for person in await gw.database.read(people.everybody)] == ["7"]
        for action, enabled in (("pause", False), ("resume", True)):
            await visitor.post(f"/ui/jobs/{job_id}/{action}", back="/ui/time")
            assert (await gw.database.read(jobs.get, job_id)).enabled is enabled
        await visitor.post(f"/ui/jobs/{job_id}/run")
        assert (await gw.database.read(jobs.get, job_id)).run_soon_at is not None
        assert (await visitor.post(f"/ui/jobs/{job_id}/delete"))[0] == 404
        assert "Prefers tea" in words(await visitor.page("/ui/memory"))
        await visitor.post(f"/ui/memory/{note_id}/forget", back="/ui/memory")
        assert await gw.database.read(memory.open_notes, "agent:main") == []
        # A conversation of the terminal goes on here as a copy, because a terminal may have it open.
        assert "hello there" in words(await visitor.page("/ui/sessions?source=cli"))
        assert (await visitor.post(f"/ui/sessions/{session_id}/messages", text="x"))[0] == 409
        copy = (await visitor.post(f"/ui/sessions/{session_id}/resume"))[2]["Location"]
        assert copy != f"/ui/sessions/{session_id}"
        assert "hello there" in words(await visitor.page(copy))
        await visitor.post(f"/ui/sessions/{session_id}/rename", title="tea talk")
        assert "tea talk" in words(await visitor.page(f"/ui/sessions/{session_id}"))
        status, text, headers = await visitor.get(f"/ui/sessions/{session_id}/export")
        assert (status, json.loads(text)["title"]) == (200, "tea talk")
        assert session_id in headers["Content-Disposition"]
        assert (await visitor.post(f"/ui/sessions/{session_id}/delete", typed="no"))[0] == 409
        assert (await visitor.post(f"/ui/sessions/{session_id}/delete", typed=session_id[-8:]))[0] == 303
        assert not await gw.database.read(store.exists, session_id)


async def test_what_fails_is_told_with_its_remedy(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        visitor = await signed_in(gw)
        for path, status in (
            ("/ui/runs/run_x", 404),
            ("/ui/sessions/none", 404),
            ("/ui/nowhere", 404),
            ("/ui/runs?status=x", 200),
        ):
            assert (await visitor.get(path))[0] == status
        assert (await visitor.post("/ui/conversations", text=" "))[0] == 400
        for query, said in (
            ("q=NOT+tea", "Nothing found"),
            ("q=%21%21", "no letter or digit"),
            ("from=soon", "no date"),
        ):
            assert said in words(await visitor.page(f"/ui/sessions?{query}"))
        assert (await visitor.get("/ui"))[2]["Location"] == "/ui/"
        assert (await visitor.head("/ui/time"))[0] == 200
        assert (await visitor.get("/ui/static/../server.py"))[0] == 404


async def test_a_page_is_told_what_has_changed(home: Path) -> None:
    goes_on, waits = asyncio.Event(), iter([False])

    async def between() -> None:
        if next(waits, True):  # the first words come at once
            await goes_on.wait()

    reply = Reply(text="Hello my very dear Ann", chunks=("Hello my very ", "dear ", "Ann"), between=between)
    async with gateway(home, [reply]) as gw:
        visitor = await signed_in(gw)
        place = (await visitor.post("/ui/conversations", text="hello"))[2]["Location"]
        shown: dict[str, str] = {}

        async def until_shown(name: str, text: str) -> None:
            while text not in words(shown.get(name, "")):
                line = (await answer.content.readline()).decode()
                if line.startswith("data: "):
                    fragment = json.loads(line.removeprefix("data: "))
                    shown[fragment["id"]] = fragment["html"]

        headers = {"Cookie": f"hermes_ui={visitor.cookie}", "Accept": "text/event-stream"}
        async with asyncio.timeout(30), gw.http.get(gw.url + place, headers=headers) as answer:
            assert answer.content_type == "text/event-stream"
            await until_shown("growing", "Hello")
            assert "Hello" not in words(shown["transcript"])
            goes_on.set()
            await until_shown("transcript", "Hello my very dear Ann")
            await until_shown("growing", "")
            # Who is signed out hears nothing more.
            await visitor.post("/ui/logout")
            while await answer.content.readline():
                pass
