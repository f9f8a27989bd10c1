"""Which words are looked up where, and how far is counted: what a search costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sessions.search.query import SearchScope, Term
from sessions.search.ranking import COUNTED, RECALL_MOST_NEAR, Counts, Place, Weighed, ranked


@dataclass
class CountedWords:
    """A database in which each word is in so many messages. Notes what it is asked."""

    holders: dict[str, int]
    messages: int = 1_000
    most_messages: list[int | None] = field(default_factory=list[int | None])
    wanted: list[Weighed] = field(default_factory=list[Weighed])
    found: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    length: dict[int, int] = field(default_factory=dict[int, int])

    def count(self, terms: Sequence[Term], most: int | None, most_messages: int | None) -> Counts:
        self.most_messages.append(most_messages)
        found = self.messages if most_messages is None else min(self.messages, most_messages)
        return Counts(messages=found, holders=[self.holders[" ".join(term.words)] for term in terms])

    def best(self, wanted: Sequence[Weighed], limit: int) -> list[tuple[int, int]]:
        assert limit
        self.wanted += wanted
        return self.found

    def lengths(self, found: Sequence[int]) -> Mapping[int, int]:
        return {number: self.length[number] for number in found}

    def best_notes(self, terms: Sequence[Term], limit: int) -> list[int]:
        raise NotImplementedError

    def looked_up(self, place: Place) -> list[str]:
        return [" ".join(each.term.words) for each in self.wanted if each.place is place]


def searched(index: CountedWords, scope: SearchScope, *, recall: bool) -> CountedWords:
    terms = [Term(tuple(word.split())) for word in index.holders]
    ranked(index, terms, scope, 10, recall=recall)
    return index


def test_a_word_that_nobody_said_is_looked_up_as_a_name_and_in_notes_only() -> None:
    index = searched(CountedWords({"walrus": 3, "unsaid": 0, "front door": 0}), SearchScope(ns="n"), recall=False)
    assert index.looked_up(Place.TEXT) == ["walrus"]
    assert sorted(index.looked_up(Place.NEAR)) == ["front door", "walrus"], "its words may stand apart"
    for place in (Place.SENDER, Place.NOTE, Place.ASKED):
        assert "unsaid" in index.looked_up(place)


def test_recall_looks_for_the_rarest_words_alone_around_messages() -> None:
    words = {f"word{number}": number for number in range(1, 9)}
    index = searched(CountedWords(words), SearchScope(ns="n"), recall=True)
    assert index.looked_up(Place.NEAR) == list(words)[:RECALL_MOST_NEAR]
    assert len(index.looked_up(Place.TEXT)) > RECALL_MOST_NEAR
    assert searched(CountedWords(words), SearchScope(ns="n"), recall=False).looked_up(Place.NEAR) == list(words)


def test_words_that_nobody_said_take_no_place_of_those_that_somebody_did() -> None:
    words = {f"unsaid{number}": 0 for number in range(8)} | {"walrus": 3, "tusk": 5}
    index = searched(CountedWords(words), SearchScope(ns="n"), recall=True)
    assert index.looked_up(Place.TEXT) == ["walrus", "tusk"] == index.looked_up(Place.NEAR)
    assert all(word.startswith("unsaid") for word in index.looked_up(Place.ASKED)), "a note may have been asked so"


def test_recall_counts_no_messages_that_are_known_to_be_there() -> None:
    words = {"walrus": 3, "tusk": 5}
    counted = searched(CountedWords(words), SearchScope(ns="n"), recall=True)
    known = searched(CountedWords(words), SearchScope(ns="n", messages=COUNTED), recall=True)
    assert (counted.most_messages, known.most_messages) == ([COUNTED], [0])
    assert known.wanted == counted.wanted


def test_names_of_senders_are_looked_up_where_several_people_write() -> None:
    words = {"ann": 3, "tea": 5}
    assert searched(CountedWords(words), SearchScope(ns="n"), recall=True).looked_up(Place.SENDER)
    alone = SearchScope(ns="n", names_of_senders=False)
    assert not searched(CountedWords(words), alone, recall=True).looked_up(Place.SENDER)


def test_of_messages_with_the_same_words_the_short_one_comes_before_the_long_one() -> None:
    index = CountedWords({"walrus": 3}, found=[(1, 1_000), (2, 1_000), (3, 400)], length={1: 4_000, 2: 80, 3: 10})
    assert ranked(index, [Term(("walrus",))], SearchScope(ns="n"), 10) == [2, 1, 3], "length never outweighs words"
