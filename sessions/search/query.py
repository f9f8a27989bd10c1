"""Parses search queries into a small tree, which `sqlite.py` and `postgres.py` translate for their database.

Plain words mean: any of them, without the stop words. A query that uses phrases, AND, OR, NOT, parentheses or `prefix*` is taken
literally. No text is an error; a query without a letter or digit has no terms.
"""

import hashlib
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import filterfalse

_SCRIPTS_WITHOUT_SPACES = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af])")
_WORD = re.compile(r"[^\W_]+")
_ASCII = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(128))
_TOKEN = re.compile(r'"([^"]*)"|([()])|([^\s()"]+)')
_STOP = frozenset(
    """
    a about after again all also am an and any are as at be because been before being but by can could did do does
    doing down during each else for from further get go had has have having he her here hers him his how i if in
    into is it its itself just let like me more most my no nor not of off on once only or other our out over own
    please same she should so some such than that the their them then there these they this those through to too
    under until up us very was we were what when where which while who whom why will with would you your
    """.split()  # noqa: SIM905  # words read better than a list of strings
)


@dataclass(frozen=True, slots=True)
class Term:
    """Words that must follow each other. `prefix`: the last one is only the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Both:
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Either:
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Without:
    left: "Node"
    right: "Node"


Node = Term | Both | Either | Without


@dataclass(frozen=True, slots=True)
class Query:
    """`literal`: written with phrases or operators, so only a message's own words count, not those of messages around it."""

    node: Node
    literal: bool

    def terms(self) -> list[Term]:
        """Returns the terms that a hit may contain; terms under NOT are left out."""
        found: list[Term] = []
        waiting = [self.node]
        while waiting:
            match waiting.pop():
                case Term() as term:
                    found.append(term)
                case Without(left, _):
                    waiting.append(left)
                case Both(left, right) | Either(left, right):
                    waiting += (right, left)
        return found


@lru_cache(maxsize=4_096)
def namespace_token(ns: str) -> str:
    """Returns the word that stands for this namespace in the index, a hash."""
    return "n" + hashlib.blake2b(ns.encode(), digest_size=8).hexdigest()


def spaced(text: str) -> str:
    """Returns the text with spaces around each character of scripts that are written without spaces, so that each is a word."""
    return text if text.isascii() else _SCRIPTS_WITHOUT_SPACES.sub(r" \1 ", text)


def words(text: str) -> list[str]:
    return _split(spaced(text))


def _split(spaced_text: str) -> list[str]:
    if spaced_text.isascii():  # the same, three times as fast
        return spaced_text.translate(_ASCII).split()
    return _WORD.findall(spaced_text.lower())


def content_words(spaced_text: str) -> dict[str, None]:
    """Returns the words without stop words, each once and in order, as keys."""
    return dict.fromkeys(filterfalse(_STOP.__contains__, _split(spaced_text)))


def is_content(word: str) -> bool:
    """Returns whether this word, in lower case, is none of the stop words."""
    return word not in _STOP


def parse(text: str) -> Query | None:
    """Returns the query; None when the text contains no letter or digit."""
    tokens = list(_tokens(text))
    if any(kind != "word" for kind, _ in tokens):
        node = _Literal(tokens).parse()
        if node is not None:
            return Query(node, literal=True)
    return _plain(text)


def _plain(text: str) -> Query | None:
    terms = [Term(tuple(found)) for token in text.split() if (found := words(token))]
    meaning = [term for term in terms if not (len(term.words) == 1 and term.words[0] in _STOP)] or terms
    node: Node | None = None
    for term in dict.fromkeys(meaning):
        node = term if node is None else Either(node, term)
    return None if node is None else Query(node, literal=False)


def any_of_its_words(text: str, most: int) -> Query | None:
    """Returns a query for any content word of a message; operators in it are not read. Of more than `most` words, uses the first and the last
    ones. Returns None when there are none."""
    found = list(content_words(spaced(text)))
    if len(found) > most:
        found = [*found[: most // 2], *found[-(most - most // 2) :]]
    node: Node | None = None
    for word in found:
        node = Term((word,)) if node is None else Either(node, Term((word,)))
    return None if node is None else Query(node, literal=False)


def stems(text: str) -> set[str]:
    """Returns the content words without the most common English endings, to compare two texts. The index uses a better stemmer of its own."""
    return {_stem(word) for word in content_words(spaced(text))}


_ENDINGS = (
    "ations",
    "ation",
    "ingly",
    "ings",
    "edly",
    "ing",
    "ies",
    "ied",
    "ers",
    "ed",
    "er",
    "es",
    "ly",
    "s",
    "e",
    "y",
)


@lru_cache(maxsize=8_192)
def _stem(word: str) -> str:
    return next((word[: -len(e)] for e in _ENDINGS if word.endswith(e) and len(word) - len(e) >= 3), word)


def _tokens(text: str) -> Iterator[tuple[str, Term | str]]:
    for phrase, parenthesis, word in _TOKEN.findall(text):
        if parenthesis:
            yield parenthesis, parenthesis
        elif word in {"AND", "OR", "NOT"}:
            yield word, word
        elif found := tuple(words(phrase or word)):
            prefix = len(found) == 1 and word.endswith("*")
            yield ("phrase" if phrase or prefix else "word"), Term(found, prefix=prefix)


class _Literal:
    """Recursive descent parser. NOT binds tighter than AND, and AND tighter than OR; two words without an operator between them mean AND."""

    def __init__(self, tokens: list[tuple[str, Term | str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def parse(self) -> Node | None:
        """Returns None when the operators are misplaced; then the words are read as plain ones."""
        node = self._either()
        return node if self._at == len(self._tokens) else None

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _take(self, kind: str) -> bool:
        if self._peek() != kind:
            return False
        self._at += 1
        return True

    def _either(self) -> Node | None:
        left = self._both()
        while left is not None and self._take("OR"):
            right = self._both()
            left = None if right is None else Either(left, right)
        return left

    def _both(self) -> Node | None:
        left = self._without()
        while left is not None and (self._take("AND") or self._peek() in {"word", "phrase", "("}):
            right = self._without()
            left = None if right is None else Both(left, right)
        return left

    def _without(self) -> Node | None:
        left = self._term()
        while left is not None and self._take("NOT"):
            right = self._term()
            left = None if right is None else Without(left, right)
        return left

    def _term(self) -> Node | None:
        if self._take("("):
            node = self._either()
            return node if self._take(")") else None
        if self._peek() not in {"word", "phrase"}:
            return None
        term = self._tokens[self._at][1]
        self._at += 1
        return term if isinstance(term, Term) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """What is searched: everything (for the owner of the machine only), one namespace of it, one session key of that, one session.

    `without_run`: the messages of this run are left out, `without`: these. `names_of_senders`: whether a word may also be the name of who
    wrote a message. `messages`: the namespace has at least so many messages, as far as the caller knows.
    """

    ns: str | None = None
    key: str | None = None
    session: str | None = None
    without_run: str | None = None
    without: Container[int] = ()
    names_of_senders: bool = True
    messages: int = 0

    def takes(self, run_id: str | None, session_id: str, key: str, ns: str) -> bool:
        """Returns whether a message of these is in the scope. The namespace is looked at again, whatever the index says."""
        return (
            (self.ns is None or self.ns == ns)
            and (self.key is None or self.key == key)
            and (self.session is None or self.session == session_id)
            and (self.without_run is None or self.without_run != run_id)
        )


_NO_VOWELS = str.maketrans("ae", "xz")
_EVERYWHERE = "w"
"""What the words for a search over all namespaces begin with. A namespace begins with another letter (`namespace_token`), so nobody can
write a word that counts as one of another namespace."""


class Mark(StrEnum):
    """Says where the word stands: in a message, in its sender's name, in the messages around it; in a note, or in a question that a note
    answers. `ALL` stands alone: every message of the namespace has it. The marks and the namespace contain no vowels, because the stemmer of
    SQLite counts vowels."""

    TEXT = "t"
    SENDER = "s"
    NEAR = "c"
    ALL = "x"
    NOTE = "n"
    ASKED = "q"
    __hash__ = str.__hash__  # as in `ranking.Place`


@lru_cache(maxsize=4_096)
def start_of(ns: str, mark: Mark) -> str:
    """Returns what the words of this namespace begin with. `ns`: see `namespace_token`; empty for a search over all namespaces."""
    return (ns.translate(_NO_VOWELS) or _EVERYWHERE) + mark


def scoped(ns: str, mark: Mark, said: str) -> str:
    """Returns the text with the namespace in front of each word. Its words must be separated by single spaces."""
    start = start_of(ns, mark)
    return f"{start}{said.replace(' ', f' {start}')}" if said else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`ns`: the namespace as one word of the index (`query.namespace_token`). `words`: the content words of the message, each once.
    `ctx`: those of the messages around it, two before and one after."""

    message_id: int
    ns: str
    sender: str
    text: str
    words: str
    ctx: str
