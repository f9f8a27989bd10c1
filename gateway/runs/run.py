"""One run as the agent loop sees it: its journal in the store, its model, its tools, its budget."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Connection

from gateway.agent.loop import Result, Situation
from gateway.agent.memory.recall import middle_of, summary_request
from gateway.agent.models.interface import AFRESH, Answer, ContextOverflow, ModelUnreachable
from gateway.agent.models.stream_reader import is_written, new_call_id
from gateway.agent.profile import AgentProfile, profile_of
from gateway.agent.tools.registry import HumanQuestion, Toolbox, ToolContext, same_arguments
from gateway.agent.window import window_of
from gateway.attachments.inbox_files import INBOX
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.runs.farewell import as_farewell, limits_of
from gateway.runs.live import NO_REPLY, LiveEvent
from gateway.runs.replies import Announcement, interruption_notice, reply_body
from gateway.runs.request import Requests, Snapshot, take_snapshot, wanted_model
from gateway.runs.waiting import APPROVED, ClaimedRun, ModelWait, Questions
from gateway.texts import say
from sessions import outbox, runs, spending, store
from sessions.db.engine import WaitingDatabase
from sessions.errors import DatabaseUnavailable, LeaseLost
from sessions.messages import Attachment, Content
from sessions.records import Message, MessageState, Role, Run, RunKind, StopReason
from sessions.runs import ModelAnswer


def arguments_of(call: Message, history: Sequence[Message]) -> str:
    """Returns the arguments of this call as the model wrote them. They stand in the answer that made it, not in the row of the call."""
    for message in reversed(history):
        for made in message.tool_calls or ():
            if made["id"] == call.tool_call_id and message.id < call.id:
                return str(made["function"]["arguments"])
    return "{}"


def times_made(history: Sequence[Message], run_id: str, call: Message, arguments: str) -> int:
    """Returns how often this run has made the very same call and had its result."""
    results = {each.tool_call_id for each in history if each.role is Role.TOOL and each.id < call.id}
    made = [each for message in history if message.run_id == run_id for each in message.tool_calls or ()]
    # Only those with a result: the call itself, and others of the same answer, are not done yet.
    same = (each["function"] for each in made if each["id"] in results)
    return sum(each["name"] == call.tool_name and same_arguments(each["arguments"], arguments) for each in same)


log = get_logger(__name__)

ENOUGH = 2
_AGAIN = "[not done: you have made this very call twice already, and its results are above; use them, or answer now]"
_CUT_OFF = "[not executed: the answer was cut off by the output limit; write less, or in several steps]"


class RunSteps:
    """Implements `gateway.agent.loop.Steps` on the store, one object per claim of a run."""

    def __init__(self, app: App, run: Run, *, draining: Callable[[], bool] = lambda: False) -> None:
        self.app = app
        self._claim = ClaimedRun(run, app)
        self._database = WaitingDatabase(app.database, partial(_log_wait, run.id))
        self._draining = draining
        self._seen: Snapshot | None = None
        self._profile: AgentProfile
        self._toolbox: Toolbox
        self._route = run.route
        self._requests = Requests(app, run.id)
        self._model_wait = ModelWait(app, self._database, self._claim)
        self._announcement = Announcement(app, run.id)
        self._questions = Questions(app, self._database, self._announcement, self._claim)
        self._partial = ""  # the text of the answer that is being written
        self._model_works = False
        self._interruption_handled = run.fence == 1  # the first claim of a run continues nothing
        self._last_answer: Answer | None = None
        self.cut_off = False

    def log_fields(self) -> dict[str, Any]:
        """Returns the fields of the log line about the run's end: chat, model, seconds since it was asked, tokens of all its steps."""
        run, answer = self._seen.run if self._seen else self._claim.now(), self._last_answer
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

    async def situation(self) -> Situation:
        day = self.app.today() if self.app.config.limits.counts_days else ""
        seen, self._profile = await self._database.read(self._read, day)
        self._seen, self._toolbox = seen, self._profile.toolbox.beside(self._claim.run.options)
        if seen.run.route != self._route:
            self._route = seen.run.route
            self.app.live.publish(LiveEvent(self._claim.run.id, "turned", run=seen.run))
        if seen.run.fence != self._claim.run.fence:  # stopped at its very start: the model is not asked in vain
            raise LeaseLost(f"Run {self._claim.run.id} was stopped or taken over.")
        self._announcement.note(seen)
        if not self._interruption_handled:
            self._interruption_handled = True
            await self._send_interruption_notice(seen)
        return Situation(calls=seen.calls, unread=seen.unread, limit=self._limit_reached(seen))

    def _read(self, conn: Connection, day: str) -> tuple[Snapshot, AgentProfile]:
        seen = take_snapshot(conn, self._claim.run.id, day, self.app.tails, self.app.views)
        profile = profile_of(self.app, self._claim.run, seen.session)
        profile = as_farewell(profile) if self._claim.run.kind is RunKind.FAREWELL else profile
        self._requests.search_past(conn, seen, profile)
        return seen, profile

    async def _send_interruption_notice(self, seen: Snapshot) -> None:
        doubtful = [call for call in seen.calls if call.state is MessageState.STARTED and not self.may_repeat(call)]
        unsure = [f"{call.tool_name} {arguments_of(call, self._snapshot.history)}" for call in doubtful]
        line, run = interruption_notice(self._claim.run.away_ms, unsure), seen.run
        if line is not None and run.route is not None:
            # The fence in the key: one notice for each interruption, also when this write is repeated.
            body, key = Content(text=line, silent=True), f"{run.id}:restarted:{run.fence}"
            now = self.app.clock()
            await self._database.write(outbox.put, run.route, body, now, dedup_key=key, session_key=run.session_key)

    @property
    def _snapshot(self) -> Snapshot:
        if self._seen is None:
            raise RuntimeError("situation() comes first")
        return self._seen

    def _limit_reached(self, seen: Snapshot) -> str | None:
        run = seen.run
        tokens = run.input_tokens + run.output_tokens
        limits = self.app.config.limits
        return (limits_of(limits) if run.kind is RunKind.FAREWELL else limits).reached(
            steps=run.steps, tokens=tokens, seconds=self._claim.now().worked_ms / 1000, today=seen.spent
        )

    # --- the model ---

    async def ask_model(self) -> Answer:
        await self._settle_files()
        seen = self._snapshot
        wanted = self._wanted
        if (why := self._model_wait.known_away(wanted, seen.run)) is not None:
            raise ModelUnreachable(why)
        request = await self._requests.build(seen, self._profile, self._toolbox)
        began = time.monotonic()
        self._partial, self._model_works = "", True
        try:
            answer = self._last_answer = await self.app.model.ask(request, self._on_token)
        except ContextOverflow as error:
            self._requests.refused(error)
            raise
        except ModelUnreachable as error:
            self.app.outages.mark_away(wanted, str(error), self.app.clock())
            raise
        self._model_works = False
        await self._model_wait.mark_back(wanted, seen.run)
        self.app.live.publish(LiveEvent(self._claim.run.id, "said"))
        took = round(time.monotonic() - began, 3)
        log.debug(
            "model.called",
            run_id=self._claim.run.id,
            model=answer.model,
            seconds=took,
            tokens=answer.usage.input_tokens,
        )
        return answer

    @property
    def may_sleep(self) -> bool:
        return self._model_wait.may_sleep

    async def sleep(self) -> int | None:
        """See `ModelWait.sleep`."""
        return await self._model_wait.sleep(self._snapshot.run, self._wanted)

    async def put_off(self, *, attempts: int) -> None:
        """See `ModelWait.put_off`."""
        await self._model_wait.put_off(self._wanted if self._seen is not None else None, attempts=attempts)

    @property
    def _wanted(self) -> str | None:
        return wanted_model(self._snapshot, self._profile)

    async def _settle_files(self) -> None:
        """Fetches the files of new messages now, so that admitting a message never waits for them."""
        seen, attachments = self._snapshot, self.app.attachments
        waiting = [
            message
            for message in seen.history
            if message.attachments
            and message.run_id == self._claim.run.id
            and any(file.is_waiting for file in message.attachments)
        ]
        if not waiting:
            return
        inbox = self.app.workspace(seen.session.ns) / INBOX
        for message in waiting:
            settled: list[tuple[Attachment, str]] = []
            for file in message.attachments:
                if not file.is_waiting:
                    settled.append((file, ""))
                elif attachments is None:
                    settled.append((replace(file, gone=True), ""))
                else:
                    settled.append(await attachments.settle(file, inbox))
            content = "\n".join(
                part for part in [message.content or "", *(line for _, line in settled)] if part.strip()
            )
            await self._database.write(store.set_attachments, message.id, content, [file for file, _ in settled])
        await self.situation()  # the request is built from the snapshot, which has to show the new texts

    def _on_token(self, text: str) -> None:
        kind = "afresh" if text == AFRESH else "token"
        self._partial = "" if text == AFRESH else self._partial + text
        self.app.live.publish(LiveEvent(self._claim.run.id, kind, text))

    # --- the journal ---

    async def take_in_new_messages(self) -> None:
        await self._database.write(runs.take_in_new_messages, self._claim.now(), self.app.clock())

    async def commit_answer(self, answer: Answer) -> None:
        await self._database.write(self._commit_answer, self._model_answer(answer), answer.finish_reason == "length")

    def _commit_answer(self, conn: Connection, said: ModelAnswer, cut_off: bool) -> None:
        now = self.app.clock()
        calls = runs.answered(conn, self._claim.now(), said, now, step=self._snapshot.run.steps)
        for call in calls if cut_off else ():
            runs.tool_done(conn, self._claim.now(), call.id, _CUT_OFF, now)

    def _model_answer(self, answer: Answer) -> ModelAnswer:
        # Some models count their ids anew with every answer, and an approval counts for one call only: each gets an id of its own.
        history = self._snapshot.history if answer.tool_calls else ()
        taken = {made["id"] for message in history for made in message.tool_calls or ()}
        calls = [
            call.as_sent(new_call_id(written=is_written(call.id)) if call.id in taken else None)
            for call in answer.tool_calls
        ]
        is_first = self._snapshot.session.system_prompt is None and self._claim.run.kind is not RunKind.FAREWELL
        return ModelAnswer(
            text="" if self._claim.run.kind is RunKind.FAREWELL else answer.text,  # nobody reads it, now or later
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
        if note := self._requests.left_out(answer):
            self._on_token(note)  # a stream and a preview must end with the text that is stored
            answer = replace(answer, text=answer.text.rstrip() + note)
        route, asked = self._snapshot.run.route, self._claim.run.kind is not RunKind.JOB
        reply = None if route is None else self._announcement.prepended_to(reply_body(answer.text, route, asked=asked))
        is_over = await self._database.write(
            self._announcement.marking_announced(runs.finish, reply),
            self._claim.now(),
            self._model_answer(answer),
            self.app.clock(),
            step=self._snapshot.run.steps,
            reply=reply,
        )
        if not is_over and reply is not None:
            self.app.live.publish(LiveEvent(self._claim.run.id, "answered"))
        return is_over

    async def keep_stopped(self) -> None:
        """Stores the part of an answer that was written when the run was stopped."""
        if not self._model_works:  # stopped during a tool: every answer so far is in the journal
            return
        text, tokens, route = self._partial.strip(), self.app.tokens, self._claim.run.route
        text = "" if NO_REPLY.startswith(text[: len(NO_REPLY)]) else text
        said = ModelAnswer(
            text=text,
            input_tokens=self._requests.size,  # estimated: the endpoint counts only at the end of a stream
            output_tokens=tokens.text(text),
            day=self.app.today(),
        )
        reply = Content(text=f"{text}\n\n{say('run.stopped_here')}") if text and route else None
        await self._database.write(runs.keep_stopped, self._claim.now(), said, self.app.clock(), reply=reply)

    async def end_over_budget(self, limit: str) -> None:
        text = say("budget.run", limit=limit)
        reply = self._announcement.prepended_to(Content(text=text)) if self._snapshot.run.route else None
        await self._database.write(
            self._announcement.marking_announced(runs.finish, reply),
            self._claim.now(),
            ModelAnswer(text=text),
            self.app.clock(),
            step=self._snapshot.run.steps,
            reply=reply,
            reason=StopReason.BUDGET,
        )

    async def hand_over_calls(self) -> None:
        await self._database.write(runs.hand_over, self._claim.now(), self.app.clock())

    async def fail(self, error: str, notice: str | None, code: str | None = None) -> None:
        """Ends the run in error; never raises for a run that is over."""
        body = self._announcement.prepended_to(Content(text=notice)) if notice else None
        await self._database.write(
            self._announcement.marking_announced(runs.fail, body),
            self._claim.now(),
            error,
            self.app.clock(),
            notice=body,
            code=code,
        )

    # --- the tools ---

    def is_callers(self, call: Message) -> bool:
        return call.tool_name in self._claim.run.options.tool_names

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
        if times_made(self._snapshot.history, self._claim.run.id, call, arguments) >= ENOUGH:
            return Result(content=_AGAIN)
        asks_first = tool.asks_first(arguments, quoted=is_written(call.tool_call_id))
        if (
            asks_first
            and (refusal := await self._questions.approval(self._snapshot.run, call, arguments)) is not APPROVED
        ):
            return refusal
        # Before the deed: after a crash this row says that nobody knows whether it was done. Reading again does no harm.
        if not tool.reads_only:
            await self._database.write(runs.tool_started, self._claim.now(), call.id, self.app.clock())
        self.app.live.publish(LiveEvent(self._claim.run.id, "tool", tool.name))
        log.debug("tool.started", run_id=self._claim.run.id, tool=tool.name)
        began = time.monotonic()
        outcome = await tool.run(self._tool_context(call), arguments)
        seconds = time.monotonic() - began
        self.app.metrics.tool_ran(tool.name, "asked" if isinstance(outcome, HumanQuestion) else "done", seconds)
        log.debug("tool.finished", run_id=self._claim.run.id, tool=tool.name, seconds=round(seconds, 3))
        self.app.live.publish(LiveEvent(self._claim.run.id, "tool_done", tool.name))
        if isinstance(outcome, HumanQuestion):
            await self._questions.ask(self._snapshot.run, call, outcome)
            return None
        return Result(content=outcome)

    async def done(self, call: Message, result: Result) -> None:
        now = self.app.clock()
        await self._database.write(runs.tool_done, self._claim.now(), call.id, result.content, now, state=result.state)
        if result.state is MessageState.UNKNOWN:
            log.warning("tool.unknown_outcome", run_id=self._claim.run.id, tool=call.tool_name)

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
            run_id=self._claim.run.id,
            summarise=self._summarise,
            embed=self.app.embeddings.of_query,
            timezone=self.app.timezone,
            job_limits=self.app.job_limits(),
            web=self.app.web,
            processes=self.app.processes,
            web_section=self.app.config.web,
        )

    async def _summarise(self, query: str, lines: Sequence[str]) -> str:
        """Returns what these lines say about the question. Its tokens count for the session and the day. Raises ModelError."""
        app, fast = self.app, self.app.fast
        # About three characters to a token, so that it fits also where the tokens of this model are not measured yet.
        most = max(2_000, (window_of(app, fast).room - 1_000) * 3)
        kept = middle_of(lines, most)
        answer = await app.model.ask(summary_request(query, kept, model=fast))
        used, session_id, day = answer.usage, self._claim.run.session_id, app.today()
        await self._database.write(spending.add_for_session, session_id, day, used.input_tokens, used.output_tokens)
        return answer.text

    # --- where it stands ---

    @property
    def is_parked(self) -> bool:
        return self._questions.parked

    @property
    def draining(self) -> bool:
        return self._draining()


def _log_wait(run_id: str, error: DatabaseUnavailable, pause: float) -> None:
    log.warning("database.unavailable", run_id=run_id, error=str(error), retry_in=pause)
