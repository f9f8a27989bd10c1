"""CPU that an answer costs on its way into a chat: Markdown parsed, split and rendered for each platform."""

import importlib
import importlib.util
import time
from collections.abc import Callable

from adapters.text.markdown import parse
from bench.table import ResultTable
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Outbound

DENSE = "**bold** *it* `code` [link](https://example.org/x) ~~gone~~ "
MIXED = "A sentence with **bold** and `code` and [a link](https://example.org/x). "
TEXTS = {
    "prose": f"{'Plain words of an ordinary answer. ' * 12}\n\n" * 60,
    "lists": "- one thing\n- **another** thing\n" * 400,
    "mixed": (MIXED * 12 + "\n\n- one\n- two\n\n```\nx = 1\n```\n\n") * 12,
    "dense": (DENSE * 4 + "\n\n") * 80,
}


def milliseconds(work: Callable[[], object], times: int = 5) -> float:
    """The least CPU that it took."""

    def once() -> float:
        began = time.process_time()
        work()
        return (time.process_time() - began) * 1000

    return min(once() for _ in range(times))


def platforms() -> list[Platform]:
    return [name for name in Platform if importlib.util.find_spec(f"adapters.{name}.render")]


def main() -> None:
    table = ResultTable("text (CPU of one answer)")
    for kind, text in TEXTS.items():
        parsed = milliseconds(lambda text=text: parse(text[:2_000]))
        table.row(f"2,000 characters, {kind}: parsed", f"{parsed:.1f} ms", "", None, "<= 5 ms")
        for name in platforms():
            render = importlib.import_module(f"adapters.{name}.render").render
            address = Address(platform=name, kind=ChatKind.DM, chat_id="7")
            out = Outbound(address=address, text=text[:10_000])
            table.row(
                f"10,000 characters, {kind}: rendered for {name}",
                f"{milliseconds(lambda render=render, out=out: render(out)):.1f} ms",
                "",
                None,
                "<= 20 ms",
            )
    print(table)


if __name__ == "__main__":
    main()
