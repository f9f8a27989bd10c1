"""One run as the agent loop sees it: its journal in the store, its model, its tools, its budget."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from gateway.agent.memory.recall import middle_of, summary_request, words_of
from gateway.agent.models.interface import AFRESH, Answer, ContextOverflow, ModelUnreachable, Shown
from gateway.agent.models.stream_reader import is_written, new_call_id
from gateway.agent.profile import AgentProfile, profile_of
from gateway.agent.tools.registry import HumanQuestion, Toolbox, ToolContext, is_allowed, same_arguments
from gateway.agent.window import window_of
from gateway.attachments.inbox_files import INBOX, save_file
from gateway.attachments.shared_files import save_received
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.runs.farewell import as_farewell, limits_of, next_try
from gateway.runs.live import NO_REPLY, Kind, LiveEvent
from gateway.runs.loop import Result, Situation
from gateway.runs.outages import GIVE_UP_MINUTES, GIVE_UP_MS
from gateway.runs.replies import approval_card, interruption_notice, not_done, question_card, reply_body, reset_line
from gateway.runs.request import EXACT, Requests, Snapshot, take_snapshot, wanted_model
from gateway.texts import say
from sessions import asks, outbox, runs, spending, store
from sessions.db.engine import WaitingDatabase
from sessions.errors import DatabaseUnavailable, LeaseLost
from sessions.keys import ChatKind, SessionKey
from sessions.messages import Attachment, AttachmentKind, Content
from sessions.records import AskKind, Message, MessageState, Role, Run, RunKind, StopReason
from sessions.runs import ModelAnswer


def arguments_of(call: Message, history: Sequence[Message]) -> str:
    """Returns the arguments of this call as the model wrote them. They stand in the answer that made it, not in the row of the call."""
    for message in reversed(history):
        for made in message.tool_calls or ():
            if made["id"] == call.tool_call_id and message.id < call.id:
                return str(made["function"]["arguments"])
    return "{}"


def times_made(history: Sequence[Message], run_id: str, call: Message, arguments: str) -> int:
    """Returns how often this run has made the very same call and had its result. A question that was withdrawn for a message had none."""
    results = {
        each.tool_call_id
        for each in history
        if each.role is Role.TOOL and each.id < call.id and each.content != NOT_ASKED
    }
    made = [each for message in history if message.run_id == run_id for each in message.tool_calls or ()]
    # Only those with a result: the call itself, and others of the same answer, are not done yet.
    same = (each["function"] for each in made if each["id"] in results)
    return sum(each["name"] == call.tool_name and same_arguments(each["arguments"], arguments) for each in same)


log = get_logger(__name__)

APPROVED = Result(content="approved")
_NOBODY = Result(content="[not done: it needs the approval of a person, and nobody can be asked here]")
ENOUGH = 2
NOT_ASKED = "[not asked: a new message arrived first; it follows]"
_AGAIN = "[not done: you have made this very call twice already, and its results are above; use them, or answer now]"
CUT_OFF = "[not executed: the answer was cut off by the output limit; write less, or in several steps]"


class ActiveRun:
    """One claim of a run. What it does is committed when a method returns; a method that changes something raises LeaseLost when the run was
    stopped or taken over. `claimed`: the run as it was when it was claimed.
    """

    def __init__(self, app: App, run: Run, *, draining: Callable[[], bool] = lambda: False) -> None:
        self.app = app
        self.claimed = run
        self._since = app.clock()
        self._database = WaitingDatabase(app.database, partial(_log_wait, run.id))
        self._draining = draining
        self._seen: Snapshot | None = None
        self._profile: AgentProfile
        self._toolbox: Toolbox
        self._route = run.route
        self._requests = Requests(app, run.id)
        # The line about a reset, above what the chat is sent first: an answer, a question, or an error.
        self._heading = ""
        self._partial = ""  # the text of the answer that is being written
        self._model_works = False
        self._interruption_handled = run.fence == 1  # the first claim of a run continues nothing
        self._last_answer: Answer | None = None
        self.cut_off = False
        self.is_parked = False

    @property
    def draining(self) -> bool:
        return self._draining()

    def _with_time_worked(self) -> Run:
        """Returns the run as it was claimed, with the time that it was worked on until now. Its fence is checked by each write."""
        worked = self.app.standstills.elapsed(self._since, self.app.clock())
        return replace(self.claimed, worked_ms=self.claimed.worked_ms + worked)

    def _publish(self, kind: Kind, text: str = "", run: Run | None = None) -> None:
        self.app.live.publish(LiveEvent(self.claimed.id, kind, text, run))

    def log_fields(self) -> dict[str, Any]:
        """Returns the fields of the log line about the run's end: chat, model, seconds since it was asked, tokens of all its steps."""
        run, answer = self._seen.run if self._seen else self._with_time_worked(), self._last_answer
        usage = (answer.usage.input_tokens, answer.usage.output_tokens) if answer else (0, 0)
        address = run.route.address if run.route else None
        return {
            "chat": f"{address.platform}:{address.chat_id}" if address else run.kind.value,
            "model": answer.model if answer else "",
            "seconds": round(max(0, self.app.clock() - run.created_at) / 1000, 3),
            "input_tokens": run.input_tokens + usage[0],
            "output_tokens": run.output_tokens + usage[1],
        }

    # --- looking ---

    async def refresh(self) -> None:
        """Reads where the run stands, and tells the chat what it has to know of that: another message, a reset, an interruption."""
        day = self.app.today() if self.app.config.limits.counts_days else ""
        seen, self._profile = await self._database.read(self._read, day)
        if await self.app.mcp.settle([call.tool_name or "" for call in seen.calls]):
            seen, self._profile = await self._database.read(self._read, day)
        self._seen, self._toolbox = seen, self._profile.toolbox.beside(self.claimed.options)
        if seen.run.route != self._route:
            self._route = seen.run.route
            self._publish("turned", run=seen.run)
        if seen.run.fence != self.claimed.fence:  # stopped at its very start: the model is not asked in vain
            raise LeaseLost(f"Run {self.claimed.id} was stopped or taken over.")
        heading, policy = "", self.app.resets.policy(seen.session.session_key)
        if seen.former is not None and policy.notify:
            line = reset_line(seen.former, seen.session.started_at, notes=seen.former_notes, policy=policy)
            heading = f"_{line}_\n\n"
        if heading != self._heading:  # told now, so that previews have it from the beginning
            self._heading = heading
            self._publish("heading", heading)
        if not self._interruption_handled:
            self._interruption_handled = True
            await self._send_interruption_notice(seen)

    def _read(self, conn: Connection, day: str) -> tuple[Snapshot, AgentProfile]:
        seen = take_snapshot(conn, self.claimed.id, day, self.app.tails, self.app.views)
        profile = profile_of(self.app, self.claimed, seen.session)
        profile = as_farewell(profile) if self.claimed.kind is RunKind.FAREWELL else profile
        self._requests.search_past(conn, seen, profile)
        return seen, profile

    async def _send_interruption_notice(self, seen: Snapshot) -> None:
        doubtful = [call for call in seen.calls if call.state is MessageState.STARTED and not self.may_repeat(call)]
        unsure = [f"{call.tool_name} {arguments_of(call, seen.history)}" for call in doubtful]
        line, run = interruption_notice(self.claimed.away_ms, unsure), seen.run
        if line is not None and run.route is not None:
            # The fence in the key: one notice for each interruption, also when this write is repeated.
            body, key = Content(text=line, silent=True), f"{run.id}:restarted:{run.fence}"
            now = self.app.clock()
            await self._database.write(outbox.put, run.route, body, now, dedup_key=key, session_key=run.session_key)

    def situation(self) -> Situation:
        """Returns where the run stood when `refresh` read it."""
        seen, limits = self._snapshot, self.app.config.limits
        run = seen.run
        limit = (limits_of(limits) if run.kind is RunKind.FAREWELL else limits).reached(
            steps=run.steps,
            tokens=run.input_tokens + run.output_tokens,
            seconds=self._with_time_worked().worked_ms / 1000,
            today=seen.spent,
        )
        return Situation(calls=seen.calls, unread=seen.unread, limit=limit)

    def _headed(self, body: Content | None) -> tuple[Content | None, str | None]:
        """Returns the body with the line about a reset above it, and the session of which it tells that; None: of none."""
        if body is None or not self._heading:
            return body, None
        spoken_from = None if body.spoken_from is None else body.spoken_from + len(self._heading)
        headed = replace(body, text=self._heading + body.text, spoken_from=spoken_from)
        return headed, self._snapshot.session.id

    @property
    def _snapshot(self) -> Snapshot:
        if self._seen is None:
            raise RuntimeError("refresh() comes first")
        return self._seen

    # --- the model ---

    async def ask_model(self) -> Answer:
        """Asks the model once. Raises ContextOverflow when the request was too long and the next one will be smaller, InputTooLong when
        none could be.
        """
        await self._settle_files()
        app, seen, wanted = self.app, self._snapshot, self._wanted
        # A run that /retry has woken asks all the same, and so does one that cannot wait.
        woken = self.claimed.fence > 1 and seen.run.away_since is None
        if self.may_sleep and not woken and (why := app.outages.why_not_to_ask(wanted, app.clock())) is not None:
            raise ModelUnreachable(why)
        request = await self._requests.build(seen, self._profile, self._toolbox)
        began = time.monotonic()
        self._partial, self._model_works = "", True
        try:
            answer = self._last_answer = await app.side_work.answer(app.model, request, self._on_token)
        except ContextOverflow as error:
            self._requests.refused(error)
            raise
        except ModelUnreachable as error:
            app.outages.mark_away(wanted, str(error), app.clock())
            raise
        self._model_works = False
        slept = seen.run.away_since is not None and seen.run.wake_at is not None
        # Wakes those that sleep because the model was away, also where another process found it away.
        if app.outages.mark_back(wanted) or slept:
            if slept:  # all that slept come at once now; a model that was just started would be away again
                app.model.start_slowly(wanted)
            count = await self._database.write(runs.wake_all, wanted)
            log.info("model.reached", model=wanted, woken=count)
        self._publish("said")
        log.debug(
            "model.called",
            run_id=self.claimed.id,
            model=answer.model,
            seconds=round(time.monotonic() - began, 3),
            tokens=answer.usage.input_tokens,
        )
        return answer

    @property
    def _wanted(self) -> str | None:
        return wanted_model(self._snapshot)

    @property
    def may_sleep(self) -> bool:
        """Returns whether the run may wait for a model that is away. A call of a program and the terminal get an error instead: somebody
        waits at the other end.
        """
        run = self.claimed
        return run.kind is not RunKind.CALL and (
            run.route is not None or run.deployment is not None or run.kind is not RunKind.CHAT
        )

    async def sleep(self) -> int | None:
        """Puts the run to sleep until the next try of the model. Returns when that is; None: it has waited long enough."""
        run, now = self._snapshot.run, self.app.clock()
        if run.away_since is not None and self.app.standstills.elapsed(run.away_since, now) >= GIVE_UP_MS:
            return None
        notice = None
        if run.kind is RunKind.CHAT and run.route is not None:
            notice = Content(text=say("model.unreachable", minutes=GIVE_UP_MINUTES))
        wake_at = self.app.outages.next_try(self._wanted, now)
        await self._database.write(
            runs.sleep, self._with_time_worked(), now, wake_at=wake_at, model=self._wanted, notice=notice
        )
        return wake_at

    async def put_off(self, *, attempts: int) -> None:
        """Puts off a farewell that cannot be given now."""
        now, wanted = self.app.clock(), self._wanted if self._seen is not None else None
        wake_at = next_try(self.claimed, now)
        await self._database.write(
            runs.sleep, self._with_time_worked(), now, wake_at=wake_at, model=wanted, attempts=attempts
        )

    async def _settle_files(self) -> None:
        """Fetches the files of new messages now, so that admitting a message never waits for them."""
        seen, attachments = self._snapshot, self.app.attachments
        waiting = [
            message
            for message in seen.history
            if message.attachments
            and message.run_id == self.claimed.id
            and any(file.is_waiting for file in message.attachments)
        ]
        if not waiting:
            return
        ns = seen.session.ns
        inbox = self.app.workspace(ns) / INBOX

        async def save(name: str, data: bytes) -> Path:
            received = partial(save_received, self.app, ns, partial(save_file, inbox, name, data))
            return await self._database.until_available(received)

        for message in waiting:
            settled: list[tuple[Attachment, str]] = []
            for file in message.attachments:
                if not file.is_waiting:
                    settled.append((file, ""))
                elif attachments is None:
                    settled.append((replace(file, gone=True), ""))
                else:
                    settled.append(await attachments.settle(file, save))
            content = "\n".join(
                part for part in [message.content or "", *(line for _, line in settled)] if part.strip()
            )
            await self._database.write(store.set_attachments, message.id, content, [file for file, _ in settled])
        await self.refresh()  # the request is built from the snapshot, which has to show the new texts

    def _on_token(self, shown: Shown) -> None:
        if shown is AFRESH:
            self._partial = ""
            self._publish("afresh")
        else:
            self._partial += shown
            self._publish("token", shown)

    # --- the journal ---

    async def take_in_new_messages(self) -> None:
        await self._database.write(runs.take_in_new_messages, self._with_time_worked(), self.app.clock())

    async def commit_answer(self, answer: Answer) -> None:
        await self._database.write(self._commit_answer, self._model_answer(answer), answer.finish_reason == "length")

    def _commit_answer(self, conn: Connection, said: ModelAnswer, cut_off: bool) -> None:
        now = self.app.clock()
        calls = runs.answered(conn, self._with_time_worked(), said, now, step=self._snapshot.run.steps)
        for call in calls if cut_off else ():
            runs.tool_done(conn, self._with_time_worked(), call.id, CUT_OFF, now)

    def _model_answer(self, answer: Answer) -> ModelAnswer:
        # Some models count their ids anew with every answer, and an approval counts for one call only: each gets an id of its own.
        history = self._snapshot.history if answer.tool_calls else ()
        taken = {made["id"] for message in history for made in message.tool_calls or ()}
        calls = [
            call.as_sent(new_call_id(written=is_written(call.id)) if call.id in taken else None)
            for call in answer.tool_calls
        ]
        is_first = self._snapshot.session.system_prompt is None and self.claimed.kind is not RunKind.FAREWELL
        return ModelAnswer(
            text="" if self.claimed.kind is RunKind.FAREWELL else answer.text,  # nobody reads it, now or later
            tool_calls=calls,
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            model=answer.model,
            day=self.app.today(),
            cut_off=answer.finish_reason == "length",
            withheld=answer.finish_reason == "content_filter",
            system_prompt=self._requests.core if is_first else None,
            model_config=self.app.chosen.describe(self.app.config.model) if is_first else {},
        )

    async def finish(self, answer: Answer) -> bool:
        self.cut_off = answer.finish_reason == "length"
        if note := self._requests.left_out(answer) + self._not_done(answer):
            self._on_token(note)  # a stream and a preview must end with the text that is stored
            answer = replace(answer, text=answer.text.rstrip() + note)
        route, asked = self._snapshot.run.route, self.claimed.kind is not RunKind.JOB
        body = None if route is None else reply_body(answer.text, route, asked=asked)
        if body is not None and answer.text.strip() and self.app.config.voice.speak and self._answers_voice():
            body = replace(body, spoken_from=0)
        reply, announces = self._headed(body)
        is_over = await self._database.write(
            runs.finish,
            self._with_time_worked(),
            self._model_answer(answer),
            self.app.clock(),
            step=self._snapshot.run.steps,
            reply=reply,
            announces=announces,
        )
        if not is_over and reply is not None:
            self._publish("answered")
        return is_over

    def _not_done(self, answer: Answer) -> str:
        run, seen = self.claimed, self._snapshot
        if run.kind is not RunKind.CHAT or seen.session.source in EXACT or answer.text.strip() == NO_REPLY:
            return ""
        if any(each.tool_calls for each in seen.history if each.run_id == run.id):
            return ""
        return not_done(words_of(seen.history, run.id), answer.text)

    def _answers_voice(self) -> bool:
        """Returns whether the last message that this run has read is a voice message."""
        for message in reversed(self._snapshot.history):
            if message.role is Role.USER and message.run_id == self.claimed.id:
                return any(file.kind is AttachmentKind.VOICE and not file.of for file in message.attachments or ())
        return False

    async def keep_stopped(self) -> None:
        """Stores the part of an answer that was written when the run was stopped."""
        if not self._model_works:  # stopped during a tool: every answer so far is in the journal
            return
        text, tokens, route = self._partial.strip(), self.app.tokens, self.claimed.route
        text = "" if NO_REPLY.startswith(text[: len(NO_REPLY)]) else text
        said = ModelAnswer(
            text=text,
            input_tokens=self._requests.size,  # estimated: the endpoint counts only at the end of a stream
            output_tokens=tokens.text(text),
            day=self.app.today(),
        )
        reply = Content(text=f"{text}\n\n{say('run.stopped_here')}") if text and route else None
        await self._database.write(runs.keep_stopped, self._with_time_worked(), said, self.app.clock(), reply=reply)

    async def end_over_budget(self, limit: str) -> None:
        text = say("budget.run", limit=limit)
        reply, announces = self._headed(Content(text=text) if self._snapshot.run.route else None)
        await self._database.write(
            runs.finish,
            self._with_time_worked(),
            ModelAnswer(text=text),
            self.app.clock(),
            step=self._snapshot.run.steps,
            reply=reply,
            announces=announces,
            reason=StopReason.BUDGET,
        )

    async def hand_over_calls(self) -> None:
        await self._database.write(runs.hand_over, self._with_time_worked(), self.app.clock())

    async def fail(self, error: str, notice: str | None, code: str | None = None) -> None:
        """Ends the run in error; never raises for a run that is over."""
        body, announces = self._headed(Content(text=notice) if notice else None)
        await self._database.write(
            runs.fail, self._with_time_worked(), error, self.app.clock(), notice=body, announces=announces, code=code
        )

    # --- the tools ---

    def is_callers(self, call: Message) -> bool:
        return call.tool_name in self.claimed.options.tool_names

    def may_run_beside_others(self, call: Message) -> bool:
        tool = self._toolbox.tools.get(call.tool_name or "")
        return tool is not None and tool.reads_only

    def may_repeat(self, call: Message) -> bool:
        tool = self._toolbox.tools.get(call.tool_name or "")
        return tool is None or tool.idempotent

    async def run_tool(self, call: Message) -> Result | None:
        toolbox = self._toolbox
        tool = toolbox.tools.get(call.tool_name or "")
        arguments = arguments_of(call, self._snapshot.history)
        if tool is None:
            return Result(content=f"[there is no tool {call.tool_name}; you have {', '.join(toolbox.tools) or 'none'}]")
        if not tool.repeatable and times_made(self._snapshot.history, self.claimed.id, call, arguments) >= ENOUGH:
            return Result(content=_AGAIN)
        shown = tool.shown(arguments)
        doubtful = is_written(call.tool_call_id) or self._is_open_chat()
        if (
            tool.asks_first(arguments, doubtful=doubtful)
            and not is_allowed(shown, self._profile.approve)
            and (refusal := await self._approval(call, arguments, shown)) is not APPROVED
        ):
            return refusal
        files = self.app.files if tool.folder else None
        if files is not None:
            await self._database.until_available(partial(files.bring, tool.folder, self._snapshot.session.ns))
        # Before the deed: after a crash this row says that nobody knows whether it was done. Reading again does no harm.
        if not tool.reads_only:
            await self._database.write(runs.tool_started, self._with_time_worked(), call.id, self.app.clock())
        self._publish("tool", tool.name)
        log.debug("tool.started", run_id=self.claimed.id, tool=tool.name)
        began = time.monotonic()
        outcome = await tool.run(self._tool_context(call), arguments)
        seconds = time.monotonic() - began
        self.app.metrics.tool_ran(tool.name, "asked" if isinstance(outcome, HumanQuestion) else "done", seconds)
        log.debug("tool.finished", run_id=self.claimed.id, tool=tool.name, seconds=round(seconds, 3))
        if files is not None:  # before its result is stored: what counts as done is not lost with this process
            keep = partial(
                files.keep, tool.folder, self._snapshot.session.ns, self._with_time_worked(), self.app.clock()
            )
            await self._database.until_available(keep)
        self._publish("tool_done", tool.name)
        if isinstance(outcome, HumanQuestion):
            card = question_card(outcome.question, outcome.options)
            await self._park(call, outcome.question, options=outcome.options, kind=AskKind.QUESTION, card=card)
            return None
        return Result(content=outcome)

    async def _approval(self, call: Message, arguments: str, shown: str) -> Result | None:
        """Returns `APPROVED` when this very call was approved, None when it is being asked now, else what the model is told."""
        run = self._snapshot.run
        is_quiet_job = run.kind is RunKind.JOB and run.route is None and run.deployment is None
        if is_quiet_job or run.kind is RunKind.FAREWELL:
            return _NOBODY
        # The approval is for these very arguments: a call that the model has changed since is asked about anew.
        digest = hashlib.sha256(f"{call.tool_name}\0{arguments}".encode()).hexdigest()
        ask = await self._database.read(asks.of_call, run.id, call.tool_call_id or "")
        if ask is None or ask.answered_at is None or ask.args_hash != digest:
            if ask is not None and ask.approved:
                await self._database.write(
                    asks.refuse, ask, ask.answered_by or "", "the call has changed", self.app.clock()
                )
            card, options = approval_card(shown), ("approve", "deny")
            await self._park(call, shown, options=options, kind=AskKind.APPROVAL, card=card, args_hash=digest)
            return None
        if ask.approved:
            return APPROVED
        return Result(content=f"[denied by {ask.answered_by or 'the user'}: {ask.answer or 'no reason given'}]")

    async def _park(
        self,
        call: Message,
        question: str,
        *,
        options: Sequence[str],
        kind: AskKind,
        card: Content,
        args_hash: str | None = None,
    ) -> None:
        """Parks the run, unless something came in meanwhile: that may be the answer, so it is taken in and the model decides again."""
        shown, announces = self._headed(card if self._snapshot.run.route else None)
        self.is_parked = await self._database.write(
            runs.park,
            self._with_time_worked(),
            call,
            question,
            self.app.clock(),
            options=options,
            kind=kind,
            args_hash=args_hash,
            card=shown,
            announces=announces,
            held_up=Content(text=say("ask.held_up")),
        )
        if self.is_parked:
            log.debug("ask.asked", run_id=self.claimed.id, kind=kind.value)
        else:  # `park` refuses while something is unread, in the transaction that would park
            await self._database.write(self._withdraw, call)

    def _withdraw(self, conn: Connection, call: Message) -> None:
        now, run = self.app.clock(), self._with_time_worked()
        runs.tool_done(conn, run, call.id, NOT_ASKED, now)
        runs.take_in_new_messages(conn, run, now)

    def _is_open_chat(self) -> bool:
        """Whether this is a group or channel of a platform in which people without access of their own may talk to the agent."""
        key = SessionKey.parse(self._snapshot.session.session_key)
        if key.platform is None or key.kind is ChatKind.DM:
            return False
        section = self.app.config.platforms.by_name().get(key.platform)
        return section is not None and bool(section.allowed_chats)

    async def done(self, call: Message, result: Result) -> None:
        now = self.app.clock()
        await self._database.write(
            runs.tool_done, self._with_time_worked(), call.id, result.content, now, state=result.state
        )
        if result.state is MessageState.UNKNOWN:
            log.warning("tool.unknown_outcome", run_id=self.claimed.id, tool=call.tool_name)

    def _tool_context(self, call: Message) -> ToolContext:
        session = self._snapshot.session
        return ToolContext(
            session=session,
            database=self._database,
            workspace=self.app.workspace(session.ns),
            skills=self.app.skills,
            outgoing=self.app.outgoing,
            clock=self.app.clock,
            idem_key=call.idem_key or "",
            run_id=self.claimed.id,
            who=self.claimed.who or "",
            summarise=self._summarise,
            embed=self.app.embeddings.of_query,
            timezone=self.app.timezone,
            job_limits=self.app.job_limits(),
            web=self.app.web,
            processes=self.app.processes,
            files=self.app.files,
        )

    async def _summarise(self, query: str, lines: Sequence[str]) -> str:
        """Returns what these lines say about the question. Its tokens count for the session and the day. Raises ModelError."""
        app, fast = self.app, self.app.fast
        # About three characters to a token, so that it fits also where the tokens of this model are not measured yet.
        most = max(2_000, (window_of(app, fast).room - 1_000) * 3)
        kept = middle_of(lines, most)
        answer = await app.model.ask(summary_request(query, kept, model=fast))
        used, session_id, day = answer.usage, self.claimed.session_id, app.today()
        who = self.claimed.who or spending.NOBODY
        await self._database.write(
            spending.add_for_session, session_id, day, who, used.input_tokens, used.output_tokens
        )
        return answer.text


def _log_wait(run_id: str, error: DatabaseUnavailable, pause: float) -> None:
    log.warning("database.unavailable", run_id=run_id, error=str(error), retry_in=pause)
