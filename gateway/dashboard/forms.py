"""What the forms of the pages do. Each is one transaction; then the browser is sent back to a page, so that a reload repeats nothing."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hmac import compare_digest
from pathlib import Path
from urllib.parse import quote, urlsplit

from aiohttp import BodyPartReader, web
from sqlalchemy import Connection

from gateway.api.http.errors import ApiError, invalid, too_large
from gateway.api.http.uploads import REFUSALS
from gateway.attachments.inbox_files import INBOX, describe_file, detect_type, save_file
from gateway.attachments.shared_files import remove_received, save_received
from gateway.dashboard.doctor import examine
from gateway.dashboard.server import COOKIE, ROOT, Answer, Visit
from gateway.texts import say
from gateway.texts.quoting import escape_speaker_marks
from sessions import deployments, erase, export, ids, inbox, jobs, outbox, people, runs, sign_ins, spending, store
from sessions.db.sql import lock
from sessions.errors import NotFound
from sessions.keys import MAIN_DEPLOYMENT, OWNER_NAMESPACE, SessionKey
from sessions.messages import Attachment, AttachmentKind, Content
from sessions.records import CallOptions, InboxRow, Message, Session

FIELD_BYTES = 262_144
FILES = 20
_PIECE = 65_536
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

FORMS: list[tuple[str, str, Answer]] = []


@dataclass(slots=True)
class Sent:
    """A form that was sent, with the value that only our own pages know. `files`: name, promised type and contents of each."""

    fields: dict[str, str] = field(default_factory=dict[str, str])
    files: list[tuple[str, str, bytes]] = field(default_factory=list[tuple[str, str, bytes]])

    def text(self, name: str) -> str:
        return self.fields.get(name, "").strip()


Submit = Callable[[Visit, Sent], Awaitable[str | web.StreamResponse]]


def form(path: str) -> Callable[[Submit], Submit]:
    """Declares the function below as what a form does that is sent to this address; it returns the page that is shown next."""

    def declare(submit: Submit) -> Submit:
        async def answer(visit: Visit) -> web.StreamResponse:
            done = await submit(visit, await _read(visit))
            if isinstance(done, web.StreamResponse):
                return done
            return web.Response(status=303, headers={"Location": done})

        FORMS.append(("POST", path, answer))
        return submit

    return declare


async def _read(visit: Visit) -> Sent:
    """Reads a form. Raises ApiError when it is not from our page, or too large. Nothing of its files is kept before it has shown where it
    is from: the first field does.
    """
    sent = Sent()
    if visit.request.content_type != "multipart/form-data":
        if (visit.request.content_length or 0) > FIELD_BYTES:
            raise too_large(f"A form may have {FIELD_BYTES:,} bytes.")
        posted = await visit.request.post()
        sent.fields = {name: value for name, value in posted.items() if isinstance(value, str)}
        _require_csrf(visit, sent)
        return sent
    try:
        await _read_parts(visit, sent)
    except ValueError as error:
        raise invalid("This form cannot be read.", code="bad_form") from error
    _require_csrf(visit, sent)
    return sent


async def _read_parts(visit: Visit, sent: Sent) -> None:
    """Reads the fields and files of a form. Raises ValueError for one that is none."""
    left_for_fields = FIELD_BYTES
    async for part in await visit.request.multipart():
        if not isinstance(part, BodyPartReader):
            raise ValueError("parts within a part")
        if part.filename:
            _require_csrf(visit, sent)
            if len(sent.files) >= FILES:
                raise too_large(f"A message may have {FILES} files.")
            left = visit.app.config.limits.attachment_bytes - sum(len(data) for _, _, data in sent.files)
            data = await _whole(part, left)
            sent.files.append((part.filename, part.headers.get("Content-Type", "application/octet-stream"), data))
        elif part.name:
            value = await _whole(part, left_for_fields)
            left_for_fields -= len(value)
            sent.fields[part.name] = value.decode("utf-8", "replace")


def _require_csrf(visit: Visit, sent: Sent) -> None:
    if not compare_digest(sent.fields.get("csrf", "").encode(), visit.csrf.encode()):
        raise ApiError(403, "This form is older than your sign-in. Reload the page, and send it again.", code="csrf")


async def _whole(part: BodyPartReader, most: int) -> bytes:
    pieces, size = list[bytes](), 0
    while piece := await part.read_chunk(_PIECE):
        size += len(piece)
        if size > most:
            what = "The files of a message" if part.filename else "The fields of a form"
            raise too_large(f"{what} may have {most:,} bytes.")
        pieces.append(piece)
    return b"".join(pieces)


async def _store(visit: Visit, sent: Sent, ns: str, write: Callable[[Connection, Message], str]) -> str:
    """Saves the files in the workspace of this namespace, and writes the message as the journal keeps it. Where it is refused, the files
    go again.
    """
    text = sent.fields.get("text", "").replace("\r\n", "\n").strip()
    if not text and not sent.files:
        raise invalid("The message is empty.", code="empty")
    most = visit.app.config.limits.message_bytes
    if len(text.encode("utf-8", "replace")) > most:
        raise too_large(f"A message may have {most:,} bytes.")
    folder, files, lines = visit.app.workspace(ns) / INBOX, list[Attachment](), [text] if text else []
    for name, promised, data in sent.files:
        mime = detect_type(data[:256]) or promised
        path = await save_received(visit.app, ns, partial(save_file, folder, name, data))
        kind = AttachmentKind.IMAGE if mime in _PICTURES else AttachmentKind.FILE
        files.append(Attachment(kind=kind, name=path.name, mime=mime, size=len(data), path=str(path)))
        if kind is not AttachmentKind.IMAGE:
            lines.append(describe_file(kind, path, mime, len(data)))
    message = Message(content="\n".join(lines), attachments=tuple(files))
    try:
        return await visit.app.database.write(write, message)
    except REFUSALS:
        await remove_received(visit.app, ns, [Path(file.path) for file in message.attachments])
        raise


def _back(sent: Sent) -> str:
    """Returns the page that the form stood on."""
    back = sent.text("back")
    wanted = urlsplit(back)
    is_ours = not wanted.scheme and not wanted.netloc and wanted.path.startswith(f"{ROOT}/")
    return back if is_ours and back.isprintable() else f"{ROOT}/"  # a line break would end the header that it goes into


# --- talking ------------------------------------------------------------------------------------------------------------------


@form("/ui/conversations")
async def begin_conversation(visit: Visit, sent: Sent) -> str:
    """Opens a thread of the main agent with this message."""

    def begin(conn: Connection, message: Message) -> str:
        now = visit.app.clock()
        # A form that is sent twice opens one thread: the row of the first one names it.
        before = inbox.by_dedup_key(conn, _dedup_key(sent))
        main = deployments.ensure_main(conn, now)
        thread_id = deployments.open_thread(conn, main, now) if before is None else ""
        key = SessionKey.parse(before.session_key) if before is not None else deployments.key_of(main.id, thread_id)
        return _say(conn, visit, sent, message, key, now)

    return f"{ROOT}/sessions/{await _store(visit, sent, OWNER_NAMESPACE, begin)}"


@form("/ui/sessions/{session_id}/messages")
async def write_message(visit: Visit, sent: Sent) -> str:
    """Says something in a thread. With a question that waits, it is the answer."""
    found = await visit.app.database.read(store.get, visit.path["session_id"])
    key = SessionKey.parse(found.session_key)
    if key.deployment is None:
        raise ApiError(409, "This conversation goes on where it is. Continue it here as a copy.", code="busy")

    def say_here(conn: Connection, message: Message) -> str:
        return _say(conn, visit, sent, message, key, visit.app.clock())

    return f"{ROOT}/sessions/{await _store(visit, sent, found.ns, say_here)}"


def _dedup_key(sent: Sent) -> str:
    """Returns the key of the message in a form. The form's number makes a form that is sent twice one message."""
    return f"ui:{sent.text('once')[:64] or secrets.token_hex(16)}"


def _require_allowance(conn: Connection, visit: Visit, sent: Sent, session_key: str, now: int) -> None:
    """Raises DayLimitReached where this person has used what they may today; not for a form that is sent again."""
    lock(conn, session_key)
    if inbox.by_dedup_key(conn, _dedup_key(sent)) is None:
        spending.require(conn, visit.account, visit.limit, now)


def _say(conn: Connection, visit: Visit, sent: Sent, message: Message, key: SessionKey, now: int) -> str:
    """Stores the message. Returns the id of the session that it is in."""
    app, session_key = visit.app, str(key)
    _require_allowance(conn, visit, sent, session_key, now)
    if inbox.count_unread(conn, session_key) >= app.config.limits.queue_per_chat:
        raise ApiError(429, "Too many messages wait in this conversation already.", code="queue_full")
    deployment = deployments.get(conn, key.deployment or MAIN_DEPLOYMENT)
    options = CallOptions(system_prompt=deployment.system_prompt, model=deployment.model)
    new = InboxRow(
        dedup_key=_dedup_key(sent), session_key=session_key, messages=[message], options=options, who=visit.account
    )
    opening = replace(app.resets.opening(session_key), deployment=deployment.id, thread_id=key.chat_id)
    runs.accept(conn, new, opening, now)
    current = store.active(conn, session_key)
    if current is None:
        raise NotFound("This conversation was deleted.")
    return current.id


# --- runs and what they ask ---------------------------------------------------------------------------------------------------


@form("/ui/runs/{run_id}/answer")
async def answer_question(visit: Visit, sent: Sent) -> str:
    """Answers a question; approves or denies a call, with a reason in words."""
    decision = {"approve": True, "deny": False}.get(sent.text("decision"))
    text = sent.text("text") or {True: "yes", False: "no", None: ""}[decision]
    ask = sent.text("ask")
    if not text or not ask.isdecimal():
        raise invalid("The answer is empty.", code="empty")

    def answer(conn: Connection, now: int) -> bool:
        who = visit.account
        return runs.answer(
            conn, visit.path["run_id"], text, visit.who, now, ask_id=int(ask), approved=decision, who=who
        )

    if not await visit.app.database.write(answer, visit.app.clock()):
        raise ApiError(409, "Somebody has answered this already, or the run has ended.", code="not_waiting")
    return _back(sent)


@form("/ui/runs/{run_id}/steer")
async def steer(visit: Visit, sent: Sent) -> str:
    """Says something to a run at work; its answer goes where it would have gone anyway."""
    if not sent.text("text"):
        raise invalid("The message is empty.", code="empty")

    def add(conn: Connection, now: int) -> None:
        run = runs.get(conn, visit.path["run_id"])
        lock(conn, run.session_key)
        current = runs.active(conn, run.session_key)
        if current is None or current.id != run.id:
            raise ApiError(409, "This run has ended.", code="ended")
        _require_allowance(conn, visit, sent, run.session_key, now)
        words = sent.text("text")
        is_in_group = run.route is not None and SessionKey.parse(run.session_key).kind not in {None, "dm"}
        said = f"[{visit.who}] {escape_speaker_marks(words)}" if is_in_group else words
        new = InboxRow(
            dedup_key=_dedup_key(sent),
            session_key=run.session_key,
            messages=[Message(content=said, sender=visit.who)],
            route=run.route,
            who=visit.account,
        )
        runs.accept(conn, new, visit.app.resets.opening(run.session_key), now)

    await visit.app.database.write(add, visit.app.clock())
    return _back(sent)


@form("/ui/runs/{run_id}/stop")
async def stop_run(visit: Visit, sent: Sent) -> str:
    await visit.app.database.write(runs.stop, visit.path["run_id"], visit.app.clock())
    return _back(sent)


# --- sessions -----------------------------------------------------------------------------------------------------------------


@form("/ui/sessions/{session_id}/rename")
async def rename(visit: Visit, sent: Sent) -> str:
    await visit.app.database.write(store.rename, visit.path["session_id"], sent.text("title"))
    return f"{ROOT}/sessions/{visit.path['session_id']}"


@form("/ui/sessions/{session_id}/resume")
async def resume(visit: Visit, sent: Sent) -> str:  # noqa: ARG001  # every form has the same parameters
    """Opens an ended conversation again where it was. One of the terminal goes on here as a copy."""

    def reopen(conn: Connection, now: int) -> Session:
        found = store.get(conn, visit.path["session_id"])
        key = SessionKey.parse(found.session_key)
        if key.scope in {"cli", "api", "response", "job"}:
            main = deployments.ensure_main(conn, now)
            return store.branch(conn, found, deployments.key_of(main.id, ids.new_id("thread")), now)
        current = runs.active(conn, found.session_key)
        if current is not None and current.session_id != found.id:
            runs.stop(conn, current.id, now)
        return store.reopen(conn, found, now)

    return f"{ROOT}/sessions/{(await visit.app.database.write(reopen, visit.app.clock())).id}"


@form("/ui/sessions/{session_id}/delete")
async def delete_session(visit: Visit, sent: Sent) -> str:
    """Deletes a conversation for good, once its title or id was typed."""

    def parts(conn: Connection) -> list[Session]:
        return store.chain(conn, store.get(conn, visit.path["session_id"]))

    found = await visit.app.database.read(parts)
    if sent.text("typed") != found[-1].id[-8:]:
        raise ApiError(409, f"Type {found[-1].id[-8:]} to delete this conversation for good.", code="not_confirmed")
    names = [part.id for part in found]
    await asyncio.to_thread(
        erase.erase, visit.app.home, visit.app.database, names, by=visit.account, now=visit.app.clock()
    )
    return f"{ROOT}/sessions"


async def export_session(visit: Visit) -> web.StreamResponse:
    """Sends the conversation as `hermes sessions export` writes it."""

    def lines(conn: Connection) -> str:
        parts = store.chain(conn, store.get(conn, visit.path["session_id"]))
        return "".join(f"{json.dumps(export.export_session(conn, part.id), ensure_ascii=False)}\n" for part in parts)

    text = await visit.app.database.read(lines)
    name = f"attachment; filename={quote(visit.path['session_id'])}.jsonl"
    return web.Response(text=text, content_type="application/jsonl", headers={"Content-Disposition": name})


FORMS.append(("GET", "/ui/sessions/{session_id}/export", export_session))


# --- jobs, notes, undelivered messages, people --------------------------------------------------------------------------------


@form("/ui/jobs/{job_id}/{action}")
async def change_job(visit: Visit, sent: Sent) -> str:
    wanted = visit.path["action"]
    if wanted not in {"pause", "resume", "run"}:
        raise NotFound("A job can be paused, resumed and run.")
    change = visit.path["job_id"], jobs.JobAction(wanted), visit.app.clock(), visit.account
    await visit.app.database.write(jobs.act, *change)
    return _back(sent)


@form("/ui/memory/{number}/forget")
async def forget_note(visit: Visit, sent: Sent) -> str:
    await asyncio.to_thread(
        erase.forget_note, visit.app.home, visit.app.database, _number(visit), by=visit.account, now=visit.app.clock()
    )
    return _back(sent)


@form("/ui/outbox/{number}/{action}")
async def settle_letter(visit: Visit, sent: Sent) -> str:
    """Sends an undelivered message again, or drops it."""

    def settle(conn: Connection, number: int, now: int) -> bool:
        if visit.path["action"] == "send":
            return outbox.send_again(conn, number, now)
        return visit.path["action"] == "drop" and outbox.drop(conn, number, now, by=visit.account)

    if not await visit.app.database.write(settle, _number(visit), visit.app.clock()):
        raise NotFound("This message is not undelivered any more.")
    return _back(sent)


def _number(visit: Visit) -> int:
    number = visit.path["number"]
    if not number.isdecimal() or len(number) > 18:
        raise NotFound(f"{number} is no number.")
    return int(number)


@form("/ui/people/approve")
async def let_in(visit: Visit, sent: Sent) -> str:
    """Lets the person in who has this code."""

    def approve(conn: Connection, now: int) -> None:
        people.let_in(conn, sent.text("code"), now, welcome=Content(text=say("people.paired")), by=visit.account)

    await visit.app.database.write(approve, visit.app.clock())
    return f"{ROOT}/platforms"


@form("/ui/doctor")
async def run_doctor(visit: Visit, sent: Sent) -> str:  # noqa: ARG001
    """Runs the doctor's checks beside the page, which shows them when they are there."""
    examine(visit)
    return f"{ROOT}/platforms"


@form("/ui/logout")
async def sign_out(visit: Visit, sent: Sent) -> web.StreamResponse:  # noqa: ARG001
    await visit.app.database.write(sign_ins.sign_out, visit.secret)
    visit.dashboard.read_again()
    response = web.Response(status=303, headers={"Location": f"{ROOT}/login"})
    response.del_cookie(COOKIE, path=ROOT)
    return response
