"""The snippets of the documentation that need packages of others, taken from its pages as they stand."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_SNIPPET = re.compile(
    r"<!-- needs(?P<npm> npm)?: (?P<packages>[^\n]+) -->\n```(?P<language>\w+)\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_NAMES = {"python": "snippet.py", "js": "snippet.mjs", "yaml": "extra-openai-models.yaml"}


@dataclass(frozen=True, kw_only=True)
class Snippet:
    page: str
    packages: tuple[str, ...]
    language: str
    code: str

    @property
    def is_node(self) -> bool:
        return self.language == "js"

    def prepare(self, folder: Path, url: str, key: str) -> list[str]:
        """Writes it where it runs, and returns the command that shows that it works."""
        folder.mkdir(exist_ok=True)
        path = folder / _NAMES[self.language]
        path.write_text(self.code.replace("http://127.0.0.1:8642", url))
        if self.is_node:
            return ["node", str(path)]
        python = str(folder.parent / "bin" / "python")
        if self.language == "yaml":  # of the `llm` tool
            (folder / "keys.json").write_text(json.dumps({"hermes": key}))
            return [python, "-m", "llm", "-m", "hermes", "hello"]
        return [python, str(path)]


def snippets() -> Iterator[Snippet]:
    for page in sorted(DOCS.rglob("*.md")):
        for found in _SNIPPET.finditer(page.read_text()):
            yield Snippet(
                page=page.name,
                packages=tuple(found["packages"].split()),
                language=found["language"],
                code=found["code"],
            )
