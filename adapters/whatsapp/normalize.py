"""Turns what Meta posts into neutral messages, and describes contents other than text to the model in words.

Pure. Nothing in it is believed to have the shape that it should have.
"""

import json
import mimetypes
import re
from collections.abc import Iterator
from typing import Any

from adapters.http import Json, as_object, part, parts, text
from adapters.whatsapp.client import failure_reason
from sessions.keys import Address, ChatKind, Platform, Sender, whatsapp_id
from sessions.messages import Attachment, AttachmentKind, Inbound, InboundKind, Quote

_STOP = re.compile(r"\s*stop[.!]?\s*", re.IGNORECASE)
_SILENT = {"reaction", "system", "request_welcome", "ephemeral"}
"""Kinds that say nothing to anybody."""


def events(payload: Any, phone_number_id: str) -> Iterator[tuple[Json, Json]]:
    """Yields every message and status of a payload, with the value around it. Those of another number of the account are left out."""
    for entry in parts(payload, "entry"):
        for change in parts(entry, "changes"):
            value = part(change, "value")
            if change.get("field") != "messages" or part(value, "metadata").get("phone_number_id") != phone_number_id:
                continue
            for status in parts(value, "statuses"):
                yield status, value
            for message in parts(value, "messages"):
                yield message, value


def normalize(event: Json, value: Json) -> list[Inbound]:
    """Returns nothing for what no user said, and for statuses other than a failure."""
    if "status" in event:
        return list(_status(event))
    kind = event.get("type")
    if kind == "system":
        return list(_system(event))
    if kind in _SILENT or not event.get("id"):
        return []
    place = _Place(event, value)
    if place.sender.id in {"", place.own_number}:  # an echo of what was said from this number
        return []
    return [_message(event, place)]


class _Place:
    """Who speaks, and where."""

    def __init__(self, event: Json, value: Json) -> None:
        contact = _contact(event, value)
        number = whatsapp_id(str(event.get("from") or contact.get("wa_id") or ""))
        scoped = str(event.get("from_user_id") or contact.get("user_id") or "")
        self.own_number = whatsapp_id(str(part(value, "metadata").get("display_phone_number") or ""))
        name = str(part(contact, "profile").get("name") or "")
        self.sender = Sender(id=number or scoped, name=name)
        # A person may come with a number, a business-scoped id, or both; both together say that they are one person.
        self.same_as = scoped if number and scoped else ""
        group = str(event.get("group_id") or "")
        self.address = Address(
            platform=Platform.WHATSAPP, kind=ChatKind.GROUP if group else ChatKind.DM, chat_id=group or self.sender.id
        )


def _contact(event: Json, value: Json) -> Json:
    """Returns what Meta tells of the sender; nothing where it lists several people, or another one."""
    nobody: Json = {}
    contacts = parts(value, "contacts")
    number, scoped = event.get("from"), event.get("from_user_id")
    if number is None and scoped is None:  # then the one person whom Meta lists has sent it
        return contacts[0] if len(contacts) == 1 else nobody
    mine = (
        one for one in contacts if (number and one.get("wa_id") == number) or (scoped and one.get("user_id") == scoped)
    )
    return next(mine, nobody)


def _message(event: Json, place: _Place) -> Inbound:
    kind, edited, message_id = _changed(event)
    # The data of the button under one of our messages.
    data = str(part(part(event, "interactive"), "button_reply").get("id") or "")
    tapped = data if data.startswith("a:") else ""
    if tapped:
        kind, message_id = InboundKind.TAP, str(part(event, "context").get("id") or "")
    text = tapped or describe_contents(edited)
    quote = _quote(edited, place)
    group = place.address.kind is ChatKind.GROUP
    mention = f"@{place.own_number}"
    mentioned = not group or kind is InboundKind.TAP or mention in text or (quote is not None and quote.from_us)
    file = attachment(edited)
    words = text.replace(mention, "").strip() or text if group else text
    passed_on = part(edited, "context")
    moment = str(event.get("timestamp") or "")
    return Inbound(
        dedup_key=f"wa:{event['id']}",
        address=place.address,
        sender=place.sender,
        message_id=message_id,
        text="/stop" if _STOP.fullmatch(words) else words,  # nobody types a slash on a phone
        kind=kind,
        mentioned=mentioned,
        mentions_other=group and not mentioned and re.search(r"@\d{5,}", text) is not None,
        by_reply=group and mentioned and mention not in text and kind is not InboundKind.TAP,
        quote=quote,
        forwarded_from="somebody" if passed_on.get("forwarded") or passed_on.get("frequently_forwarded") else "",
        attachments=() if file is None else (file,),
        sent_at=int(moment) * 1000 if moment.isdecimal() and len(moment) < 12 else 0,
        same_as=place.same_as,
    )


def _changed(event: Json) -> tuple[InboundKind, Json, str]:
    """Returns the kind of the event, the contents that count, and the id of the message that it is about."""
    match event.get("type"):
        case "edit":
            edit = part(event, "edit")
            return InboundKind.EDIT, part(edit, "message"), str(edit.get("original_message_id"))
        case "revoke":
            return InboundKind.DELETED, {}, str(part(event, "revoke").get("original_message_id"))
        case _:
            return InboundKind.MESSAGE, event, str(event["id"])


def _quote(event: Json, place: _Place) -> Quote | None:
    """WhatsApp names the message that is replied to, and does not send its words; of an ad and of a product it tells more."""
    context, sent_from = part(event, "context"), origin(event)
    if not context.get("id"):
        return Quote(message_id="", text=sent_from, sender_name="an ad or a post") if sent_from else None
    author = whatsapp_id(str(context.get("from") or ""))
    return Quote(message_id=str(context["id"]), text=sent_from, from_us=author == place.own_number)


def _status(event: Json) -> Iterator[Inbound]:
    if event.get("status") != "failed" or not event.get("id"):
        return
    errors = parts(event, "errors")
    chat = whatsapp_id(str(event.get("recipient_id") or event.get("recipient_user_id") or ""))
    kind = ChatKind.GROUP if event.get("recipient_type") == "group" else ChatKind.DM
    yield Inbound(
        dedup_key=f"wa:{event['id']}:failed",
        address=Address(platform=Platform.WHATSAPP, kind=kind, chat_id=chat),
        sender=Sender(id=chat),
        message_id=str(event["id"]),
        text=failure_reason(errors[0] if errors else {}),
        kind=InboundKind.FAILED,
    )


def _system(event: Json) -> Iterator[Inbound]:
    """Reads that somebody has a new number or a new business-scoped id: the first one stays the key."""
    system = part(event, "system")
    kind = text(system, "type")
    if "changed_number" in kind:
        old, new = text(event, "from"), text(system, "wa_id") or text(system, "new_wa_id")
    elif "changed_user_id" in kind:  # of a person without a number
        old = text(system, "previous_user_id") or text(event, "from_user_id")
        new = text(system, "user_id")
    else:
        return
    old, new = whatsapp_id(old), whatsapp_id(new)
    if not old or not new or old == new:
        return
    yield Inbound(
        dedup_key=f"wa:{event.get('id')}",
        address=Address(platform=Platform.WHATSAPP, kind=ChatKind.DM, chat_id=old),
        sender=Sender(id=old),
        message_id=str(event.get("id") or ""),
        text=new,
        kind=InboundKind.MOVED,
    )


# --- contents ---

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
            # The button or the line of a list that was chosen, or the fields of a form that was filled in.
            form = part(inside, "nfm_reply")
            if form:
                return "\n".join(
                    [f"[form {text(form, 'name')}]".replace(" ]", "]"), *_fields(text(form, "response_json"))]
                )
            chosen = part(inside, "button_reply") or part(inside, "list_reply")
            title, about = text(chosen, "title"), text(chosen, "description")
            return f"{title} ({about})" if title and about else title
        case "location":
            named = "".join(f", {inside[key]}" for key in ("name", "address", "url") if inside.get(key))
            return f"[location {inside.get('latitude')} {inside.get('longitude')}{named}]"
        case "contacts":
            return "\n".join(_shared_contact(one) for one in parts(message, "contacts"))
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
    ids = text(product, "product_retailer_id"), text(product, "catalog_id")
    return "[product {} of catalog {}]".format(*ids) if product else ""


def _order(order: Json) -> Iterator[str]:
    yield f"[order from catalog {text(order, 'catalog_id')}]"
    for item in parts(order, "product_items"):
        price = f"{item.get('item_price', '?')} {text(item, 'currency')}".strip()
        yield f"- {text(item, 'quantity') or '?'} × {text(item, 'product_retailer_id')}, {price} each"
    if said := text(order, "text"):
        yield said


def _fields(response: str) -> Iterator[str]:
    try:
        filled_in = as_object(json.loads(response))
    except (ValueError, RecursionError):
        return
    for name, value in filled_in.items():
        if name != "flow_token":
            yield f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def _shared_contact(contact: Json) -> str:
    told = [text(part(contact, "name"), "formatted_name"), text(part(contact, "org"), "company")]
    told += (text(one, "phone") for one in parts(contact, "phones"))
    told += (text(one, "email") for one in parts(contact, "emails"))
    told += (text(one, "url") for one in parts(contact, "urls"))
    for one in parts(contact, "addresses"):
        told += (text(one, key) for key in ("street", "zip", "city", "country"))
    return f"[contact {', '.join(filter(None, told))}]"
