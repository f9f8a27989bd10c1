"""The plainest estimate of tokens: a quarter of the bytes. `gateway/agent/tokens.py` corrects it by what endpoints count."""

BYTES_PER_TOKEN = 4


def size_in_bytes(text: str) -> int:
    return (
        len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    )  # a lone surrogate is no reason to fail


def estimated_tokens(*texts: str | None) -> int:
    return -(-sum(size_in_bytes(text) for text in texts if text) // BYTES_PER_TOKEN)
