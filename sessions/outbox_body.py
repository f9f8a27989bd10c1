"""Converts the body of an outbox row to JSON and back: text, buttons and files, before they are rendered for the platform."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from sessions.keys import Address
from sessions.messages import Attachment, AttachmentKind, Button, Outbound

_ASK = "{ask}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxBody:
    """A message before it is rendered, or (`closes`) the number of an ask whose card in the chat has to lose its buttons.

    `silent`: without a notification. Empty fields are not stored.
    """

    text: str = ""
    buttons: tuple[Button, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    silent: bool = False
    closes: int | None = None

    def to_json(self) -> str:
        stored: dict[str, Any] = {} if self.closes is not None else {"text": self.text}
        if self.buttons:
            stored["buttons"] = [{"label": button.label, "data": button.data} for button in self.buttons]
        if self.attachments:
            stored["attachments"] = [_stored_file(file) for file in self.attachments]
        if self.silent:
            stored["silent"] = True
        if self.closes is not None:
            stored["closes"] = self.closes
        return json.dumps(stored, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        stored: Mapping[str, Any] = json.loads(text)
        return cls(
            text=str(stored.get("text", "")),
            buttons=tuple(Button(label=each["label"], data=each["data"]) for each in stored.get("buttons", ())),
            attachments=tuple(_file(each) for each in stored.get("attachments", ())),
            silent=bool(stored.get("silent", False)),
            closes=stored.get("closes"),
        )

    def for_ask(self, number: int) -> Self:
        """Returns the card with the number of its ask in the data of its buttons, in place of `{ask}`."""
        return replace(
            self, buttons=tuple(replace(each, data=each.data.replace(_ASK, str(number))) for each in self.buttons)
        )

    def outbound(self, address: Address, *, reply_to: str | None, respond_to: str = "") -> Outbound:
        """Returns the message for the adapter."""
        return Outbound(
            address=address,
            text=self.text,
            reply_to=reply_to,
            buttons=self.buttons,
            attachments=self.attachments,
            silent=self.silent,
            respond_to=respond_to,
        )


def _stored_file(file: Attachment) -> dict[str, Any]:
    return {"kind": file.kind, "name": file.name, "mime": file.mime, "size": file.size, "path": file.path}


def _file(stored: Mapping[str, Any]) -> Attachment:
    return Attachment(
        kind=AttachmentKind(stored["kind"]),
        name=stored["name"],
        mime=stored["mime"],
        size=stored["size"],
        path=stored["path"],
    )
