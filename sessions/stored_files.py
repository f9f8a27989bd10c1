"""The files of a message, as inbox and journal store them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from sessions.messages import Attachment, AttachmentKind

_KINDS = frozenset(AttachmentKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file that came with a message. Empty fields are not stored.

    Where it is, before the run fetches it: `platform` with `ref` (an adapter fetches it), or `address` (fetched by us, and forgotten then). Afterwards
    `path`, or `gone`. `url`: an address that the model's endpoint follows itself.
    `part`: the kind of content part that the model has to get it as, with its `detail`. `of`: whose file it is when it belongs to a quoted message.
    """

    kind: AttachmentKind = AttachmentKind.FILE
    name: str = "file"
    mime: str = ""
    size: int | None = None
    platform: str = ""
    ref: str = ""
    address: str = ""
    path: str = ""
    url: str = ""
    part: str | None = None
    detail: str | None = None
    of: str = ""
    gone: bool = False

    @property
    def is_waiting(self) -> bool:
        """True while it still has to be fetched."""
        return not (self.path or self.url or self.gone)

    def as_attachment(self) -> Attachment:
        """What an adapter is asked to fetch."""
        return Attachment(kind=self.kind, name=self.name, mime=self.mime, size=self.size, ref=self.ref)

    @classmethod
    def from_attachment(cls, file: Attachment, platform: str, *, of: str = "") -> Self:
        return cls(
            kind=file.kind, name=file.name, mime=file.mime, size=file.size, ref=file.ref, platform=platform, of=of
        )

    def to_stored(self) -> dict[str, Any]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if value or name in {"kind", "name"}}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Ignores keys that it does not know: imported conversations may hold any."""
        known = {each.name: stored[each.name] for each in fields(cls) if stored.get(each.name)}
        kind = known.pop("kind", AttachmentKind.FILE)
        return cls(kind=AttachmentKind(kind) if kind in _KINDS else AttachmentKind.FILE, **known)
