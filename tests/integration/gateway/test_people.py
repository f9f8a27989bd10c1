"""Letting people in: codes that are short-lived, few, kept as hashes, and good for one person."""

import contextlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, text

from gateway.cli.main import hermes
from sessions import people
from sessions.db import Database, open_database
from sessions.errors import NotFound
from sessions.keys import Address, ChatKind, Platform
from tests.conftest import START

HOUR = 3_600_000


def asks(database: Database, user: str, now: int = START, platform: Platform = Platform.TELEGRAM) -> str | None:
    address = Address(platform=platform, kind=ChatKind.DM, chat_id=user)
    return database.write_now(people.request_access, platform, user, f"Person {user}", address, now)


def asked(database: Database, user: str, now: int = START, platform: Platform = Platform.TELEGRAM) -> str:
    code = asks(database, user, now, platform)
    assert code is not None
    return code


def stored(conn: Connection) -> str:
    return repr([tuple(row) for row in conn.execute(text("SELECT * FROM pairings"))])


def test_a_code_is_easy_to_read_out_and_kept_as_a_hash(sqlite: Database):
    codes = [asked(sqlite, str(number), START, Platform.TELEGRAM) for number in range(3)]
    for code in codes:
        first, dash, second = code.partition("-")
        assert (len(first), dash, len(second)) == (4, "-", 4)
        assert set(first + second) <= set("ABCDEFGHJKLMNPQRSTUVWXYZ23456789")
        assert code not in sqlite.read_now(stored)
        assert code.replace("-", "") not in sqlite.read_now(stored)
    assert len(set(codes)) == 3


def test_three_wait_at_most_on_each_platform_and_each_once(database: Database):
    assert all(asks(database, str(number)) for number in range(3))
    assert asks(database, "1") is None
    assert asks(database, "9") is None
    assert asks(database, "9", platform=Platform.SLACK)
    assert asks(database, "9", START + HOUR)
    assert len(database.read_now(people.pending, START + HOUR)) == 1


def test_a_code_lets_one_person_in_once_within_an_hour(database: Database):
    code = asked(database, "7")
    person, route = database.write_now(people.approve, f" {code.lower().replace('-', ' ')} ", START + HOUR - 1)
    assert (person.user_id, person.owner, route.address.chat_id) == ("7", True, "7")
    with pytest.raises(NotFound, match="hermes pair list"):
        database.write_now(people.approve, code, START + HOUR - 1)
    late = asked(database, "8")
    with pytest.raises(NotFound):
        database.write_now(people.approve, late, START + HOUR)
    assert [known.user_id for known in database.read_now(people.everybody)] == ["7"]


def test_only_the_first_is_the_owner(database: Database):
    for user in ("7", "8"):
        database.write_now(people.approve, asked(database, user), START)
    assert [known.owner for known in database.read_now(people.everybody)] == [True, False]


def test_the_owners_code_makes_an_owner_once_on_its_platform_and_approves_nobody(database: Database):
    database.write_now(people.approve, asked(database, "8"), START)
    old, shown_elsewhere, *_, code = [
        database.write_now(people.owner_code, "telegram", START + number) for number in range(people.OWNER_CODES + 1)
    ]
    assert database.read_now(people.pending, START) == []
    with pytest.raises(NotFound):
        database.write_now(people.approve, code, START)
    for wrong_platform, wrong in (("slack", code), ("telegram", old), ("telegram", asked(database, "9"))):
        assert database.write_now(people.redeem_owner_code, wrong_platform, wrong, "7", "Ann", START) is None
    assert database.write_now(people.redeem_owner_code, "telegram", code, "7", "Ann", START)
    for used in (code, shown_elsewhere):
        assert database.write_now(people.redeem_owner_code, "telegram", used, "6", "Eve", START) is None
    assert {known.user_id: known.owner for known in database.read_now(people.everybody)} == {"8": False, "7": True}


def test_the_code_of_the_first_screen_is_good_beside_that_of_setup(database: Database):
    shown = database.write_now(people.owner_code, "telegram", START)
    database.write_now(people.owner_code, "telegram", START + 1)
    assert database.write_now(people.redeem_owner_code, "telegram", shown, "7", "Ann", START + 2)


def test_who_is_let_in_waits_no_more(database: Database):
    asked(database, "7")
    code = database.write_now(people.owner_code, "telegram", START)
    assert database.write_now(people.redeem_owner_code, "telegram", code, "7", "Ann", START)
    assert database.read_now(people.pending, START) == []


def test_an_owners_code_ends_after_a_day(sqlite: Database):
    code = sqlite.write_now(people.owner_code, "telegram", START)
    assert sqlite.write_now(people.redeem_owner_code, "telegram", code, "7", "Ann", START + 24 * HOUR) is None


def test_revoking_by_id_or_with_the_platform(database: Database):
    for platform, user in ((Platform.TELEGRAM, "7"), (Platform.SLACK, "7"), (Platform.SLACK, "T1:U2")):
        database.write_now(people.approve, asked(database, user, START, platform), START)
    assert [gone.platform for gone in database.write_now(people.revoke, "slack:7")] == ["slack"]
    assert len(database.write_now(people.revoke, "slack:T1:U2")) == 1
    assert [gone.platform for gone in database.write_now(people.revoke, "7")] == ["telegram"]
    with pytest.raises(NotFound):
        database.write_now(people.revoke, "7")


def test_who_is_let_in_by_the_configuration_is_listed_and_revoking_says_that_they_still_are(home: Path):
    config = """platforms: {slack: {enabled: true, bot_token: xoxb-1, app_token: xapp-1, allowed_users: ["U7"]}}
people: [{name: bo, ids: ["slack:U8"]}]
"""
    (home / "config.yaml").write_text(config)
    with contextlib.closing(open_database(home)) as database:
        for number, user in enumerate(("U7", "U8", "U9")):
            database.write_now(people.admit, "slack", user, f"Person {user}", START + number)

    def pair(*arguments: str) -> str:
        return CliRunner().invoke(hermes, ["--home", str(home), "pair", *arguments]).output

    assert pair("list").splitlines() == [
        "slack:U7  Person U7  in allowed_users  (owner)",
        "slack:U8  Person U8  in people as bo",
        "slack:U9  Person U9",
    ]
    assert pair("revoke", "U9") == "Person U9 (slack:U9) has no access any more.\n"
    said = "The pairing of Person U8 (slack:U8) is removed. config.yaml still gives access: in people as bo.\n"
    assert pair("revoke", "slack:U8") == said
    assert "slack:U8  in people as bo\n" in pair("list")


def owner_of(database: Database, configured: str = "", first_allowed: str | None = None) -> str | None:
    database.write_now(people.decide_owner, "telegram", configured, first_allowed)
    return database.read_now(people.owners).get("telegram")


def test_the_owner_stays_whatever_the_list_says_until_somebody_is_named(database: Database):
    assert owner_of(database) is None
    assert owner_of(database, first_allowed="111") == "111"
    assert owner_of(database, first_allowed="222") == "111"
    database.write_now(people.approve, asked(database, "333"), START)
    assert owner_of(database) == "111"
    assert owner_of(database, configured="222", first_allowed="111") == "222"
    assert owner_of(database, first_allowed="111") == "222"


def test_a_check_of_the_configuration_sees_the_owner_and_needs_no_database(
    home: Path, database_url: str, database: Database, tmp_path: Path
):
    assert people.known_owners_in(home, database_url, ["telegram"]) == {}
    database.write_now(people.store_owner, "telegram", "111")
    assert people.known_owners_in(home, database_url, ["telegram"]) == {"telegram": "111"}
    assert people.known_owners_in(tmp_path / "none", "", ["telegram"]) == {}
    assert people.known_owners_in(home, "postgresql://nobody:x@127.0.0.1:1/none", ["telegram"]) == {}
