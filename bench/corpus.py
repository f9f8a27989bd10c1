"""Text like that of chats: words by Zipf's law over a fixed vocabulary, sentences and lengths as people and agents write them."""

import random
from collections.abc import Iterator

_COMMON = """
    the to and a of in is it you that for on with this be are have not can we as but at if or so from do will just
    your was what there all about when my they get one like time would out up which more some how has them then
    other been now only over also after use two way could people than first work make good well back even want
    because any these give most us deploy server release branch error test report meeting customer invoice budget
    plan review ticket cluster database backup restore monday
""".split()  # noqa: SIM905  # words read better than a list of strings
_ONSETS = "b br c ch d dr f fl g gr h j k l m n p pl qu r s sh st t tr v w z".split()  # noqa: SIM905
_VOWELS = "a e i o u ai ea ou io".split()  # noqa: SIM905
_ENDS = "n r s t l m nd st ng tion ment ity ed ing er able".split()  # noqa: SIM905


def vocabulary(rng: random.Random, size: int = 20_000) -> list[str]:
    words = dict.fromkeys(_COMMON)
    while len(words) < size:
        syllables = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 3)))
        words[syllables + rng.choice(_ENDS)] = None
    return list(words)


def texts(count: int, *, seed: int = 7, mean: int = 46) -> Iterator[str]:
    """About 280 characters each, from a few words to several paragraphs."""
    rng = random.Random(seed)
    words = vocabulary(rng)
    weights = [1 / (rank + 2.7) for rank in range(len(words))]
    pool = rng.choices(words, weights, k=400_000)
    at = 0
    for _ in range(count):
        length = max(2, min(400, int(rng.expovariate(1 / mean))))
        if at + length > len(pool):
            rng.shuffle(pool)
            at = 0
        chosen = pool[at : at + length]
        at += length
        yield " ".join(chosen).capitalize() + "."
