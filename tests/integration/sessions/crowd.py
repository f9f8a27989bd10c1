"""Programs of their own for tests with several processes: `python -m tests.integration.sessions.crowd WHAT HOME …`."""

import sys
import threading
import time
from pathlib import Path

from sqlalchemy import Connection

from sessions import store
from sessions.db import open_database
from sessions.keys import SessionKey
from sessions.records import Message, Role, Source
from sessions.search import message_index
from sessions.transcripts import Transcripts

NOW = 1_750_000_000_000


def write_for_ever(home: Path) -> None:
    """As fast as it can, from several threads, with the mirrors and the index behind. Each line printed was acknowledged."""
    database = open_database(home)
    transcripts = Transcripts(home, database)
    output = threading.Lock()

    def write(number: int) -> None:
        key = SessionKey.parse(f"agent:main:telegram:group:{number}")
        session = database.write_now(_open, key)
        for i in range(1_000_000):
            message = Message(role=Role.USER, content=f"word{number} saying{i} " + "more words " * (i % 40))
            (row,) = database.write_now(store.append, session, [message], NOW + i)
            with output:
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()

    for number in range(4):
        threading.Thread(target=write, args=(number,), daemon=True).start()
    while True:
        transcripts.flush()
        database.write_now(message_index.index_some, 50)
        time.sleep(0.005)


def _open(conn: Connection, key: SessionKey) -> str:
    found = store.active(conn, str(key))
    return found.id if found else store.start(conn, key, NOW, source=Source.TELEGRAM).id


def write_and_search(home: Path, number: int, count: int) -> None:
    """A share of a crowd: sessions of its own, searches in between, everything written found again."""
    database = open_database(home)
    key = SessionKey.parse(f"agent:main:slack:channel:{number}")
    session = database.write_now(store.start, key, NOW, source=Source.SLACK)
    for i in range(count):
        new = Message(role=Role.USER, content=f"process{number} message{i}")
        database.write_now(store.append, session.id, [new], NOW + i)
        if i % 25 == 0:
            while database.write_now(message_index.index_some):
                pass
            assert database.read_now(message_index.search, f"process{number} message{i}", ns=session.ns)
    assert len(database.read_now(store.read_messages, session.id)) == count
    database.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["for-ever", home]:
            write_for_ever(Path(home))
        case ["share", home, number, count]:
            write_and_search(Path(home), int(number), int(count))
        case other:
            sys.exit(f"unknown: {other}")
