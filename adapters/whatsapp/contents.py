"""Reads the files of a WhatsApp message, and describes other contents to the model in words."""

import mimetypes

from adapters.payload import Json, part, parts
from sessions.messages import Attachment, AttachmentKind

_FILES = {
    "image": AttachmentKind.IMAGE,
    "sticker": AttachmentKind.IMAGE,
    "video": AttachmentKind.VIDEO,
    "audio": AttachmentKind.AUDIO,
    "document": AttachmentKind.FILE,
}


def attachment(message: Json) -> Attachment | None:
    """Returns the file of the message; None: it has none. `ref` is its id, under which its address is asked for."""
    kind = str(message.get("type"))
    media = part(message, kind)
    if kind not in _FILES or not media.get("id"):
        return None
    voice = kind == "audio" and bool(media.get("voice"))
    mime = str(media.get("mime_type") or "application/octet-stream").partition(";")[0].strip()
    # `mimetypes` calls it .oga or nothing, as the system wants.
    ending = ".ogg" if mime == "audio/ogg" else mimetypes.guess_extension(mime) or ""
    name = media.get("filename") or f"{'voice' if voice else kind}-{str(media['id'])[-8:]}{ending}"
    return Attachment(
        kind=AttachmentKind.VOICE if voice else _FILES[kind], name=str(name), mime=mime, ref=str(media["id"])
    )


def describe_contents(message: Json) -> str:
    """Returns the text of the message, or what it is. Empty for kinds that cannot be read."""
    kind = str(message.get("type"))
    inside = part(message, kind)
    match kind:
        case "text":
            return str(inside.get("body") or "")
        case "button":
            return str(inside.get("text") or "")
        case "interactive":
            chosen = part(inside, "button_reply") or part(inside, "list_reply")
            return str(chosen.get("title") or "")
        case "location":
            named = "".join(f", {inside[key]}" for key in ("name", "address") if inside.get(key))
            return f"[location {inside.get('latitude')} {inside.get('longitude')}{named}]"
        case "contacts":
            return "\n".join(_contact(one) for one in parts(message, "contacts"))
        case "order":
            return f"[order of {len(parts(inside, 'product_items'))} products] {inside.get('text') or ''}".strip()
        case _ if kind in _FILES:
            return str(inside.get("caption") or "")
        case _:
            return ""


def _contact(contact: Json) -> str:
    name = str(part(contact, "name").get("formatted_name") or "")
    numbers = [str(one.get("phone")) for one in parts(contact, "phones")]
    return f"[contact {', '.join(filter(None, (name, *numbers)))}]"
