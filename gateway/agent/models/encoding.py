"""The JSON that is sent to models. A message that is the same in many requests is encoded once."""

import json

from gateway.agent.models.interface import JSON


class EncodedMessage(JSON):
    """A message with its JSON, and its size as `tokens.size_of` counts it. It must not be changed. `json` is empty before the first call of
    `encode`."""

    __slots__ = ("json", "size")

    def __init__(self, message: JSON, size: int) -> None:
        super().__init__(message)
        self.size = size
        self.json = b""

    def encode(self) -> bytes:
        """Raises ValueError as `encoded` does."""
        self.json = encoded(dict(self))
        return self.json


def encoded(value: object) -> bytes:
    """Returns the value as JSON. Raises ValueError for a number that JSON does not know, and for text that UTF-8 does not."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def encoded_body(body: JSON) -> bytes:
    """Returns the body of a call as it is sent. Raises ValueError for what cannot be sent."""
    messages = [
        each.json or each.encode() if isinstance(each, EncodedMessage) else encoded(each) for each in body["messages"]
    ]
    others = encoded({name: value for name, value in body.items() if name != "messages"})
    return b'{"messages":[' + b",".join(messages) + b"]," + others[1:]
