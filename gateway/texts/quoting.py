"""Words of others, as Markdown quotes them."""


def as_quoted(text: str) -> str:
    """Every line says that it is somebody else's."""
    return "\n".join(f"> {line}" for line in text.splitlines())
