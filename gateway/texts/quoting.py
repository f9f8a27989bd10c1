"""Quotes the words of other people as Markdown does."""


def as_quoted(text: str) -> str:
    """Puts `> ` before every line."""
    return "\n".join(f"> {line}" for line in text.splitlines())
