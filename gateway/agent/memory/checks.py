"""Checks the notes that a fold proposes against the messages: every number and name in a note must be in the messages that it names.

Where one is not, the note is replaced by the sentence of the messages that is most like it. Notes without a message, questions without an
answer, and secrets are removed. No I/O.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import date

from gateway.agent.memory.fold import FoldedNote, of_people, sentences_of, speaker
from gateway.observe.redaction import redact
from sessions.clock import as_time, iso
from sessions.memory import NewObservation
from sessions.records import Message, Observation, Role
from sessions.search.query import stems

LONGEST_SENTENCE = 500
QUESTIONS, LONGEST_QUESTION = 3, 100
LONGEST_CAUSE = 300
_FAR = 31
"""An event may be dated up to this many days from its message though the message does not name the date: "last Friday", "in two weeks"."""

_EXACT = re.compile(r"https?://\S+|\d[\d.,:/_-]*\d|\d")
_NAME = re.compile(r"\b[^\W\d_][\w'’-]*")
_PASSWORD = re.compile(
    r"(?P<what>\b(?:password|passwort|passphrase|api[ _-]?key|access token|pin code)\b\W{0,3}(?:(?:is|was|ist|:|=)\W{0,3})+)\S+",
    re.IGNORECASE,
)
_YES = re.compile(
    r"\W*(?:yes|yeah|yep|yup|sure|ok|okay|right|exactly|correct|true|indeed|absolutely|agreed|perfect|please do|do (?:it|that)|go ahead|ja|oui|si|sí)\b",
    re.IGNORECASE,
)
_SPEAKER_WORDS = frozenset(
    [
        "i",
        "user",
        "users",
        "assistant",
        "the",
        "a",
        "an",
        "they",
        "their",
        "he",
        "she",
        "it",
        "people",
        "person",
        "somebody",
    ]
)


def checked(
    notes: Sequence[FoldedNote],
    messages: Sequence[Message],
    candidates: Sequence[Observation],
    *,
    in_their_words: bool = False,
) -> list[NewObservation]:
    """Returns the notes that pass the checks, corrected where necessary. `candidates`: the notes that may be replaced. `in_their_words`: a note
    has to share a word with what was said, as those of a small model do."""
    by_id = {message.id: message for message in messages}
    numbers = {candidate.id for candidate in candidates}
    found = (_checked(note, by_id, numbers, in_their_words=in_their_words) for note in notes)
    return [each for each in found if each is not None]


def _checked(
    note: FoldedNote, by_id: dict[int, Message], candidates: set[int], *, in_their_words: bool
) -> NewObservation | None:
    sources = _sources(note, by_id)
    text = " ".join(note.text.split())
    if not sources or text.endswith(("?", "？")):
        return None
    # With date and speaker: a note may name both, though nobody has said them.
    said = _as_shown(sources)
    best = _sentence(text, sources)
    # A small model makes a fact of what was only asked.
    if best.endswith(("?", "？")) and _nobody_answered(best, sources):
        return None
    if not _is_in(said, text, first_word=True):
        if not are_alike(text, best):  # else a note with a wrong number becomes what is said in another matter
            return None
        text = best[:LONGEST_SENTENCE]
    cause = " ".join((note.cause or "").split())[:LONGEST_CAUSE]
    told = " ".join(message.content or "" for message in sources)
    if not stems(cause) & stems(told) or cause == text:
        cause = ""
    if _says_nothing(text, sources, in_their_words=in_their_words):
        return None
    text = without_secrets(text)  # after the comparison, for which it has to be in the words of the messages
    if not text.strip():
        return None
    return NewObservation(
        kind=note.kind,
        text=text,
        src=tuple(message.id for message in sources),
        cause=without_secrets(cause) if cause and _is_in(said, cause, first_word=False) else None,
        happened=_happened(note.happened, sources, said),
        replaces=note.replaces if note.replaces in candidates else None,
        asked_as=_questions(note.asked_as),
    )


def _sources(note: FoldedNote, by_id: dict[int, Message]) -> list[Message]:
    """Returns the folded messages that the note is from: those that it names, unless another message of a person shares more words with it
    (small models name wrong ones). What only the agent has said is from nobody, unless a person said yes to it: then that person's message
    is a source, too."""
    named = [by_id[number] for number in dict.fromkeys(note.src) if number in by_id]
    said = of_people(list(by_id.values()))
    other = max(said, key=lambda message: _fit(note.text, [message]), default=None)
    is_alike = other is not None and are_alike(note.text, other.content or "")
    if other is not None and is_alike and not (of_people(named) and _fit(note.text, [other]) <= _fit(note.text, named)):
        return [other]
    if of_people(named):
        return named
    agreed = _agreed(named, list(by_id.values()))
    return [] if agreed is None else [*named, agreed]


def _fit(text: str, messages: Sequence[Message]) -> tuple[int, bool]:
    """Returns how well the messages support the text: how many words they share, and whether they hold its numbers and names."""
    said = _as_shown(messages)
    return len(stems(text) & stems(" ".join(message.content or "" for message in messages))), _is_in(
        said, text, first_word=True
    )


def may_replace(new: str, old: Observation, messages: Sequence[Message]) -> bool:
    """Returns whether two notes may be about the same thing: they share half of the words of the shorter one, without names of speakers."""
    names = stems(" ".join(map(speaker, messages)))
    one, other = stems(new) - names, stems(old.text) - names
    return new != old.text and 2 * len(one & other) >= max(1, min(len(one), len(other)))


def are_alike(text: str, said: str) -> bool:
    """Returns whether a third of the words of the text are in what was said."""
    wanted = stems(text)
    return len(wanted & stems(said)) >= max(1, len(wanted) // 3)


def _agreed(named: Sequence[Message], messages: Sequence[Message]) -> Message | None:
    """Returns the message with which a person said yes directly after the last of these."""
    last = max((message.id for message in named), default=None)
    after = next((message for message in messages if last is not None and message.id > last), None)
    return after if after is not None and of_people([after]) and _YES.match(after.content or "") else None


def _as_shown(messages: Sequence[Message]) -> str:
    """Returns the messages with date and speaker, as the model saw them."""
    return "\n".join(f"{iso(each.created_at)[:10]} {speaker(each)}: {each.content or ''}" for each in messages)


def _sentence(text: str, sources: Sequence[Message]) -> str:
    """Returns the sentence of the messages that shares most words with the text; of equal ones one of a person, not of the assistant."""
    wanted = stems(text)
    order = sorted(sources, key=lambda message: message.role is Role.ASSISTANT)  # `max` takes the first of equal ones
    sentences = [sentence for message in order for sentence in sentences_of(message.content or "")]
    return max(sentences, key=lambda sentence: len(wanted & stems(sentence)), default="")


def _says_nothing(text: str, sources: Sequence[Message], *, in_their_words: bool) -> bool:
    """Returns whether the text has no word beside the names of who wrote it, or is a whole message of hardly more, as small models copy them."""
    said = stems(text) - stems(" ".join(map(speaker, sources)))
    if in_their_words:
        said &= stems(" ".join(message.content or "" for message in sources))
    copied = any(text == " ".join((message.content or "").split()) for message in sources)
    return len(said) < (2 if copied else 1)


def _nobody_answered(question: str, sources: Sequence[Message]) -> bool:
    """Returns whether no other sentence of the sources comes after the question."""
    asked = next((i for i, m in enumerate(sources) if question in " ".join((m.content or "").split())), None)
    if asked is None:
        return True
    after = " ".join((sources[asked].content or "").split()).partition(question)[2]
    return not after.strip() and asked == len(sources) - 1


def _is_in(said: str, text: str, *, first_word: bool) -> bool:
    """Returns whether every number, date, address and name in the text is in the messages (`said`)."""
    heard, words = said.casefold(), {word.casefold() for word in _NAME.findall(said)}
    exact = (found.group().rstrip(".,:;/-)") for found in _EXACT.finditer(text))
    if not all(_holds(heard, value.casefold()) for value in exact):
        return False
    return all(_was_said(name, words) for name in _names(text, first_word=first_word))


def _holds(heard: str, value: str) -> bool:
    """Returns whether the messages contain this value as a whole: 15 is not in 150, 3.1 not in 3.11, and 20 not in 2026-11-20."""
    return re.search(rf"(?<![\w.-]){re.escape(value)}(?!\w|[.,]\d)", heard) is not None


def _names(text: str, *, first_word: bool) -> Iterable[str]:
    """Yields the capitalised words of the text. The first word of a sentence counts as a name only when `first_word` is set and it does not
    look like a verb or a stop word."""
    begins = {match.start(1) for match in re.finditer(r"(?:^|[.!?:]\s+)[\"“']?(\w)", text)}
    for match in _NAME.finditer(text):
        word = match.group()
        if not word[0].isupper() or word.casefold() in _SPEAKER_WORDS:
            continue
        # Notes begin with a verb, as in `Removed Redis`, which is a capitalised word and no name.
        if match.start() in begins and (not first_word or _may_begin(word)):
            continue
        yield word


def _may_begin(word: str) -> bool:
    return word.lower().endswith(("s", "ed", "ing", "es")) or not stems(word)


def _was_said(name: str, words: set[str]) -> bool:
    # The plural and the possessive of a name that was said are said too.
    plain = name.casefold()
    bare = re.sub(r"['’]s?$", "", plain)
    return bool({plain, bare, f"{bare}s", bare.removesuffix("s")} & words) or bool(
        stems(bare) & {s for w in words for s in stems(w)}
    )


def _happened(said: str | None, sources: Sequence[Message], heard: str) -> str | None:
    """Returns the date when it is valid and is close to the date of a source or named in one; else None."""
    match = re.fullmatch(r"(\d{4})-(\d{2})(?:-(\d{2}))?", (said or "").strip())
    if match is None:
        return None
    try:
        day = date(int(match[1]), int(match[2]), int(match[3] or 1))
    except ValueError:
        return None
    said_on = [as_time(message.created_at).date() for message in sources]
    near = any(abs((day - other).days) <= _FAR for other in said_on)
    # Or the message says it in words: `in March 2026`.
    named = match[0] in heard or (match[1] in heard and (f"{day:%B}" in heard or f"{day:%b}" in heard))
    return match[0] if near or named else None


def _questions(asked: Sequence[str]) -> tuple[str, ...]:
    short = [" ".join(question.split()) for question in asked]
    kept = [question for question in dict.fromkeys(short) if 0 < len(question) <= LONGEST_QUESTION]
    return tuple(map(without_secrets, kept[:QUESTIONS]))


def without_secrets(text: str) -> str:
    """Returns the text with keys and passwords replaced by `****`."""
    return _PASSWORD.sub(r"\g<what>****", redact(text))
