"""A process that writes as fast as it can: messages, tool calls, transcripts, the index; it tells of each commit on its output.

Run as a script: HOME NAME COUNT. With COUNT 0 it goes on until it is killed.
"""

import itertools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from sessions import store
from sessions.db import Database, open_database, search
from sessions.keys import SessionKey
from sessions.records import NewMessage, Role, Session, Source
from sessions.transcripts import Transcripts


def main(home: Path, name: str, count: int) -> None:
    database = open_database(home)
    transcripts = Transcripts(home, database)
    transcripts.repair()
    key = SessionKey.parse(f"agent:main:telegram:group:{name}")
    session = database.read_now(store.active, str(key)) or database.write_now(
        store.start, key, 1, source=Source.TELEGRAM
    )
    behind = threading.Thread(
        target=mirror_and_index, args=(database, transcripts, (done := threading.Event())), daemon=True
    )
    behind.start()
    for number in range(count) if count else itertools.count():
        write(database, session, f"{name}-{os.getpid()}-{number}")
    done.set()
    behind.join()
    transcripts.close()
    database.close()


def write(database: Database, session: Session, word: str) -> None:
    database.write_now(store.append, session.id, [NewMessage(role=Role.USER, content=f"{word} deploy")], 1)
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def mirror_and_index(database: Database, transcripts: Transcripts, done: threading.Event) -> None:
    for _ in turns(done):
        transcripts.flush()
        while database.write_now(search.index_some, 50):
            pass
        database.read_now(search.search, "deploy", limit=3)


def turns(done: threading.Event) -> Iterator[None]:
    """Until done, and once more."""
    while not done.is_set():
        yield
    yield


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
