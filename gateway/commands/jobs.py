"""`/jobs`: lists, pauses, resumes, runs and deletes the jobs of this chat."""

from sqlalchemy import Connection

from gateway.agent.tools.schedule import line_of
from gateway.commands.base import CommandContext, namespace_of
from gateway.texts import say
from sessions import jobs
from sessions.errors import Invalid, NotFound
from sessions.jobs import Job

LISTED = 20
_ACTIONS = ("pause", "resume", "run", "delete")


def show(conn: Connection, chat: CommandContext, argument: str) -> str:
    """Lists the jobs of this chat, or changes one (`pause ID` and the like)."""
    found = jobs.listing(conn, ns=namespace_of(conn, chat))
    if argument:
        return _act(conn, chat, found, argument)
    if not found:
        return say("job.none")
    return "\n".join([*(f"- {line_of(job)}" for job in found[:LISTED]), "", say("job.how")])


def _act(conn: Connection, chat: CommandContext, found: list[Job], argument: str) -> str:
    action, _, wanted = argument.partition(" ")
    if action not in _ACTIONS or not wanted.strip():
        return say("command.usage", usage="/jobs pause|resume|run|delete ID")
    # Among the jobs of this chat alone: the id of a job elsewhere is as unknown as one that does not exist.
    wanted = wanted.strip()
    fitting = [each for each in found if each.id.startswith(wanted)] or [each for each in found if each.name == wanted]
    if len(fitting) > 1:
        return say("job.several", wanted=wanted, ids=", ".join(each.id for each in fitting))
    if not fitting:
        return say("job.no_such", wanted=wanted)
    (job,) = fitting
    try:
        match action:
            case "pause":
                jobs.pause(conn, job.id)
            case "resume":
                jobs.resume(conn, job.id, chat.now)
            case "run":
                jobs.run_soon(conn, job.id, chat.now)
            case _:
                jobs.remove(conn, job.id)
    except (Invalid, NotFound) as error:
        return str(error)
    return say(f"job.did_{action}", name=job.name)
