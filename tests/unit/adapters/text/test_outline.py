"""The quick reader of blocks: what it reads, what it leaves to the parser, and that both make the same of the nastiest texts."""

import pytest

from adapters.text.blocks import Fence, Rule, Table
from adapters.text.leaves import Prose
from adapters.text.markdown import quickly
from adapters.text.outline import read
from adapters.text.thorough import Document


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one\n  two\n\n", [Prose("one\n  two", {"quote": 0})]),
        ("one\n# two\n", [Prose("one", {"quote": 0})]),
        ("## a b\n\n", [Prose("a b", {"quote": 0, "level": 2})]),
        ("***\n", [Rule()]),
        ("- - -\n", [Rule()]),
        ("```js x\n a\n\n```\n", [Fence(code=" a\n", language="js")]),
        ("~~~\n```\n    ~~~\n  ~~~~\n", [Fence(code="```\n    ~~~")]),
        ("> a\n>\n> ---\n", [Prose("a", {"quote": 1}), Rule(quote=1)]),
        ("| a | b |\n|:-|-:|\n| c |\n", [Table(header=("a", "b"), rows=(("c", ""),))]),
        ("\n  \n\n", []),
    ],
)
def test_what_it_reads(text: str, found: list[object]) -> None:
    result = read(text, 0)
    assert result is not None
    assert result[0] == found
    assert text[result[1] :] in {"", "# two\n"}


def test_lists_are_read_with_all_that_is_in_them() -> None:
    result = read("3. a\nlazy\n   - b\n     - c\n\n4. d\n\n   ```py\n   x\n     y\n   ```\n   e\n\nafter\n", 0)
    assert result is not None
    first, second, third, fourth, code, last = result[0]
    assert first == Prose("a\nlazy", {"quote": 0, "indent": 1, "marker": "3."})
    assert second == Prose("b", {"quote": 0, "indent": 2, "marker": "•", "tight": True})
    assert third == Prose("c", {"quote": 0, "indent": 3, "marker": "•", "tight": True})
    assert fourth == Prose("d", {"quote": 0, "indent": 1, "marker": "4.", "tight": False})
    assert code == Fence(code="x\n  y", language="py", indent=1)
    assert last == Prose("e", {"quote": 0, "indent": 1, "tight": False})


DOUBTFUL = [
    "Title\n=====\n",
    "Title\n---\n",
    "    code\n",
    "\tcode\n",
    " one\n",
    "one\n  - two\n",
    "one\n2. two\n",
    "a | b\n--|--\n1 | 2\n",
    "| a \\| b |\n|---|\n",
    "| a |\n|---|---|\n",
    "| a |\n|---|\nb\n",
    "| \u2003a | b\u00a0|\n|-|-|\n",
    "# a | b\n- | -\n",
    "# a #\n",
    "#\n",
    "```\nnever closed\n",
    "``` a|b\n-|-\n```\n",
    "> a\nlazy\n",
    "> ```\n>\ta\n> ```\n",
    "> > > > > a\n",
    "> [a]: u\n",
    "[a]: u\n",
    "[a\nb]: u\n",
    "\u2003a\n",
    "a\u00a0\n",
    "-\n",
    "-     code\n",
    "-\ta\n",
    "- # a\n",
    "- > a\n",
    "- - a\n",
    "- ```\n  a\n  ```\n",
    "- a\n  # b\n",
    "- a\n\n  > b\n",
    "- a\n---\n",
    "- a\n  ---\n",
    "- a\n      - b\n",
    "- a\n  2. b\n",
    "- a\n\n      code\n",
    "- a\n  - b\n  * c\n",
    "- a\n  ```\n x\n  ```\n",
    "- a\n  ```\n  b\n```\n",
    "- a\n\n   ```\n  \tb\n   ```\n",
    "- [a]: u\n",
]


@pytest.mark.parametrize("text", DOUBTFUL)
def test_what_it_leaves_to_the_parser(text: str) -> None:
    assert read(text, 0) is None


@pytest.mark.parametrize(
    "text",
    [
        *DOUBTFUL,
        *[f"a\n\n{text}\n{text}b" for text in DOUBTFUL],
        "- a\n+ b\n1. c\n2) d\n",
        "- a\n\n- b\n  - c\n\n  - d\n- e\n\n  f\n",
        "1. a\n   1. b\n\n   c\n2. d\n",
        "- a\n - b\n  - c\n   - d\n    - e\n",
        "10. a\n    - b\n  - c\n- d\n",
        "- a\n  b\nc\n      d\n- e\n",
        "- a `b\n     c` d\n",
        "- a\n```\nb\n```\n- c\n",
        "- a\n ```\n b\n ```\n- c\n",
        "- a\n> b\n- c\n***\n- d\n# e\n",
        "- a|\n---\n- |b\n---\n",
        "- &nbsp;\n\n  a\n- [](https://e.org)\n- b\n",
        "&nbsp;\n\n# &nbsp;\n\na\n",
        "> - a\n>\n> - b\n>   c\n> d\n\n> e\n\n\n> f\n",
        "> ```\n> a\n>  b\n>c\n> ```\n",
        "> ```\n> a\n\nb\n",
        "[a] and [b]\n\n- [a]\n\n| [a] |\n|-|\n\n[a]: u\n[b]: <v> 'w'\n[a]: x\n",
        "- a\n\n  [b]: u\n\n[b]\n",
        "|a|b|\n|-|-|\n|c|d|e|\n| |\n||\n|`|`|\u2028x|\n",
        "a\r\nb\r\r- c\0\r\n",
        "a\x0bb\n\x0c\n- c\x85d\u2028e\n",
        "- a\n\n\n\n  b\n \t\n- c\n",
        "  - a\n  - b\n\n   c\n",
    ],
)
def test_it_reads_as_the_parser_does(text: str) -> None:
    assert quickly(Document(text)) in (None, list(Document(text).whole()))
