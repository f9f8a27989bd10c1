"""Reads the files of a WhatsApp message, and describes other contents to the model in words."""

import json
import mimetypes
from collections.abc import Iterator

from adapters.payload import Json, as_object, part, parts, text
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
            return _chosen(inside)
        case "location":
            named = "".join(f", {inside[key]}" for key in ("name", "address", "url") if inside.get(key))
            return f"[location {inside.get('latitude')} {inside.get('longitude')}{named}]"
        case "contacts":
            return "\n".join(_contact(one) for one in parts(message, "contacts"))
        case "order":
            return "\n".join(_order(inside))
        case _ if kind in _FILES:
            return str(inside.get("caption") or "")
        case _:
            return ""


def origin(message: Json) -> str:
    """Describes what the message was sent from: an ad, or a product of the catalog; empty for most."""
    ad, product = part(message, "referral"), part(part(message, "context"), "referred_product")
    if ad:
        told = (text(ad, key) for key in ("source_type", "headline", "body", "source_url"))
        return "\n".join(filter(None, told))
    return _product(product) if product else ""


def _product(product: Json) -> str:
    return f"[product {text(product, 'product_retailer_id')} of catalog {text(product, 'catalog_id')}]"


def _order(order: Json) -> Iterator[str]:
    yield f"[order from catalog {text(order, 'catalog_id')}]"
    for item in parts(order, "product_items"):
        price = f"{item.get('item_price', '?')} {text(item, 'currency')}".strip()
        yield f"- {text(item, 'quantity') or '?'} × {text(item, 'product_retailer_id')}, {price} each"
    if said := text(order, "text"):
        yield said


def _chosen(interactive: Json) -> str:
    """Returns the button or the line of a list that was chosen, or the fields of a form that was filled in."""
    form = part(interactive, "nfm_reply")
    if form:
        return "\n".join([f"[form {text(form, 'name')}]".replace(" ]", "]"), *_fields(text(form, "response_json"))])
    chosen = part(interactive, "button_reply") or part(interactive, "list_reply")
    title, about = text(chosen, "title"), text(chosen, "description")
    return f"{title} ({about})" if title and about else title


def _fields(response: str) -> Iterator[str]:
    try:
        filled_in = as_object(json.loads(response))
    except (ValueError, RecursionError):
        return
    for name, value in filled_in.items():
        if name != "flow_token":
            yield f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def _contact(contact: Json) -> str:
    told = [text(part(contact, "name"), "formatted_name"), text(part(contact, "org"), "company")]
    told += (text(one, "phone") for one in parts(contact, "phones"))
    told += (text(one, "email") for one in parts(contact, "emails"))
    told += (text(one, "url") for one in parts(contact, "urls"))
    for one in parts(contact, "addresses"):
        told += (text(one, key) for key in ("street", "zip", "city", "country"))
    return f"[contact {', '.join(filter(None, told))}]"
