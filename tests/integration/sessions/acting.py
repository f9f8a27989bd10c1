"""A program that does what is recorded, one act after the other, until it is killed: `python -m tests.integration.sessions.acting HOME`."""

import os
import sys
import uuid
from itertools import count
from pathlib import Path

from sqlalchemy import Connection

from sessions import erase, jobs, memory, people, sign_ins, store
from sessions.db import open_database
from sessions.keys import OWNER_NAMESPACE, Address, ChatKind, SessionKey
from sessions.messages import Content
from sessions.records import Source

WHO = "cli:ann"
NOW = 1_750_000_000_000
DM = Address(platform="telegram", kind=ChatKind.DM, chat_id="7")


def main(home: Path) -> None:
    database = open_database(home)

    def each(conn: Connection, number: int) -> tuple[str, str, int, str]:
        wanted = jobs.new_job(name=f"job {number}", prompt="x", schedule="every 30m", timezone="UTC", now=NOW)
        job = jobs.create(conn, wanted, who=WHO)
        code = people.request_access(conn, "telegram", str(number), "Bo", DM, NOW) or ""
        note = memory.note(conn, OWNER_NAMESPACE, uuid.uuid4().hex, NOW)
        return job.id, code, note.id, sign_ins.new_link(conn, WHO, NOW)

    for number in count(os.getpid() * 1_000_000):  # each process has numbers of its own
        job, code, note, link = database.write_now(each, number)
        session = database.write_now(store.start, SessionKey.cli(f"c{number}"), NOW, source=Source.CLI)
        for action in (jobs.JobAction.PAUSE, jobs.JobAction.DELETE):
            database.write_now(jobs.act, job, action, NOW, WHO)
        if code:  # kills have left three who wait otherwise, and no more may
            database.write_now(people.let_in, code, NOW, Content(text="welcome"), by=WHO)
            database.write_now(people.shut_out, str(number), NOW, by=WHO)
        database.write_now(sign_ins.redeem, link, NOW)
        erase.forget_note(home, database, note, by=WHO, now=NOW)
        erase.erase(home, database, [session.id], by=WHO, now=NOW)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
