"""Turns Slack's events into neutral messages. Pure; names of people are filled in by the adapter."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from adapters.http import Json, part, parts, text
from adapters.slack.app_manifest import COMMAND
from adapters.slack.contents import attachments, describe_contents, forwarded, raw_mentions
from adapters.slack.render import SAYS
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Inbound, InboundKind, Quote

_KINDS = {"im": ChatKind.DM, "mpim": ChatKind.GROUP}
_SAID = {"", "file_share", "thread_broadcast", "me_message"}
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^>]*)?>")
_FOR_ALL = re.compile(r"<!(?:here|channel|everyone|subteam)\b[^>]*>")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackBot:
    """Who we are in this workspace."""

    team: str
    user: str
    bot: str = ""
    app: str = ""


def normalize(body: Json, me: SlackBot) -> list[Inbound]:
    """Returns nothing for what nobody said: edits by unfurling, other bots, ourselves, unknown events."""
    match body.get("type"):
        case "event_callback":
            return list(_event(part(body, "event"), text(body, "team_id") or me.team, me))
        case "block_actions":
            return list(_taps(body, me))
        case "message_action":
            return list(_shortcut(body, me))
        case _ if body.get("command"):
            return list(_command(body, me))
        case _:
            return []


def _event(event: Json, team: str, me: SlackBot) -> Iterator[Inbound]:
    match event.get("type"):
        case "message" | "app_mention":
            yield from _message(event, team, me)
        case "agent_session_stopped":
            yield from _stopped(event, team)
        case "app_home_opened" if event.get("tab", "home") == "home":
            user = text(event, "user")
            yield Inbound(
                dedup_key="",  # the page is shown again each time; nothing is stored
                address=_address("im", user, None),
                sender=Sender(id=user),
                message_id="",
                kind=InboundKind.HOME,
            )
        # Without an inviter the bot joined by itself, and nobody waits for a greeting.
        case "member_joined_channel" if event.get("user") == me.user and event.get("inviter"):
            yield _membership(event, text(event, "inviter"), InboundKind.JOINED)
        case "channel_left" | "group_left":
            yield _membership(event, text(event, "actor_id") or me.user, InboundKind.LEFT)
        case _:
            return


def _message(event: Json, team: str, me: SlackBot) -> Iterator[Inbound]:
    match text(event, "subtype"):
        case "message_changed":
            yield from _changed(event, team, me)
        case "message_deleted":
            yield from _deleted(event, team, me)
        case subtype if subtype in _SAID:
            said = _inbound(event, event, team, me)
            if said is not None:
                yield said
        case _:
            return


def _inbound(message: Json, event: Json, team: str, me: SlackBot) -> Inbound | None:
    user, ts, channel = text(message, "user"), text(message, "ts"), text(event, "channel")
    if not user or not ts or not channel or message.get("bot_id") or user == me.user or message.get("hidden"):
        return None
    kind = _address(event.get("channel_type"), channel, None).kind
    raw = raw_mentions(message)
    named = set(_MENTION.findall(raw))
    direct = kind is ChatKind.DM
    mentioned = direct or me.user in named
    files = tuple(attachments(message))
    thread = text(message, "thread_ts")
    words, quote = describe_contents(message, me.user), forwarded(message)
    passed_on = ""
    if quote is not None and not words:  # nothing was said to it, so that all is somebody else's words
        words, passed_on, files, quote = quote.text, quote.sender_name, (*files, *quote.attachments), None
    seconds = ts.partition(".")[0]
    return Inbound(
        # By channel and time: a mention arrives as two events, `message` and `app_mention`, with two event ids.
        dedup_key=f"sl:{team}:{channel}:{ts}",
        address=_address(event.get("channel_type"), channel, _thread(kind, thread, ts)),
        sender=Sender(id=user, name=_name(message)),
        message_id=ts,
        text=words,
        mentioned=mentioned,
        mentions_other=not mentioned and bool(named or _FOR_ALL.search(raw)),
        in_thread=bool(thread) and thread != ts and not direct,
        # In the thread only where there is one already: nobody sees what is in a thread that does not begin.
        private_reply=f"user:{user}:{thread}" if me.user in named and not direct else "",
        by_reply=False,
        quote=quote,
        forwarded_from=passed_on,
        attachments=files,
        sent_at=int(seconds) * 1000 if seconds.isdecimal() else 0,
    )


def _changed(event: Json, team: str, me: SlackBot) -> Iterator[Inbound]:
    """Reads an edit. Slack also calls it a change when a link gets its preview, or a thread its first reply."""
    message, before = part(event, "message"), part(event, "previous_message")
    if not part(message, "edited") or describe_contents(message) == describe_contents(before):
        return
    said = _inbound(message, event, team, me)
    if said is None:
        return
    edited = text(part(message, "edited"), "ts")
    yield replace(said, kind=InboundKind.EDIT, dedup_key=f"{said.dedup_key}:{edited}")


def _deleted(event: Json, team: str, me: SlackBot) -> Iterator[Inbound]:
    before = dict(part(event, "previous_message"))
    before.setdefault("ts", text(event, "deleted_ts"))
    said = _inbound(before, event, team, me)
    if said is not None:
        yield replace(said, kind=InboundKind.DELETED, dedup_key=f"{said.dedup_key}:deleted")


def _stopped(event: Json, team: str) -> Iterator[Inbound]:
    """Reads the stop button beside an answer that is being worked on."""
    user = text(event, "user") or text(event, "user_id")
    channel = text(event, "channel") or text(event, "channel_id")
    thread, at = text(event, "thread_ts"), text(event, "event_ts") or text(event, "ts")
    if not user or not channel:
        return
    yield Inbound(
        dedup_key=f"sl:{team}:{channel}:{thread}:stopped:{at}",
        address=_address(event.get("channel_type"), channel, thread or None),
        sender=Sender(id=user),
        message_id=thread or at,
        text="/stop",
    )


def _taps(body: Json, me: SlackBot) -> Iterator[Inbound]:
    user, container = part(body, "user"), part(body, "container")
    sender = Sender(id=text(user, "id"), name=text(user, "username") or text(user, "name"))
    channel = text(part(body, "channel"), "id") or text(container, "channel_id")
    team = text(part(body, "team"), "id") or me.team
    ts, thread = text(container, "message_ts"), text(container, "thread_ts")
    for action in parts(body, "actions"):
        data = text(action, "value")
        if not sender.id or not data.startswith(("a:", "/", SAYS)):
            continue
        is_group = text(part(body, "channel"), "name").startswith("mpdm-")
        named_kind = ChatKind.GROUP if is_group else ChatKind.CHANNEL
        kind = ChatKind.DM if channel.startswith("D") or not channel else named_kind
        yield Inbound(
            dedup_key=f"sl:{team}:{channel or sender.id}:{ts}:{text(action, 'action_ts')}",
            address=Address(
                platform=Platform.SLACK,
                kind=kind,
                chat_id=channel or sender.id,  # from the bot's own page, which is in no chat
                thread_id=_thread(kind, thread, ts) if ts else None,
            ),
            sender=sender,
            message_id=ts,
            text=data.removeprefix(SAYS),
            kind=InboundKind.TAP if data.startswith("a:") else InboundKind.MESSAGE,
            respond_to=text(body, "response_url"),
            private_reply=text(body, "response_url"),
        )


def _shortcut(body: Json, me: SlackBot) -> Iterator[Inbound]:
    """Reads that somebody hands us a message by its menu. It is answered in the direct chat with them."""
    user, message = part(body, "user"), part(body, "message")
    person, stamp = text(user, "id"), text(body, "action_ts") or text(body, "trigger_id")
    words, quote, files = describe_contents(message), forwarded(message), tuple(attachments(message))
    if quote is not None:
        words, files = "\n".join(filter(None, (words, quote.text))), (*files, *quote.attachments)
    if not person or not (words or files):
        return
    yield Inbound(
        dedup_key=f"sl:{text(part(body, 'team'), 'id') or me.team}:{person}:shortcut:{stamp}",
        address=Address(platform=Platform.SLACK, kind=ChatKind.DM, chat_id=person),
        sender=Sender(id=person, name=text(user, "username") or text(user, "name")),
        message_id="",
        text=words,
        forwarded_from=author(message) or "somebody",
        attachments=files,
    )


def app_root(root: Json, me: SlackBot) -> Quote | None:
    """Returns the first message of a thread as a quote, if an app has written it. What people write is heard as they write it."""
    is_apps = bool(root.get("bot_id") or root.get("app_id") or text(root, "subtype") == "bot_message")
    words, files = describe_contents(root), tuple(attachments(root))
    if not is_apps or text(root, "user") == me.user or not (words or files):
        return None
    return Quote(message_id=text(root, "ts"), text=words, sender_name=author(root), attachments=files)


def author(message: Json) -> str:
    return text(part(message, "bot_profile"), "name") or text(message, "username") or _name(message)


def _command(body: Json, me: SlackBot) -> Iterator[Inbound]:
    """Reads a slash command: `/hermes new` is /new; alone it asks for help."""
    user, channel = text(body, "user_id"), text(body, "channel_id")
    given = text(body, "text").strip().removeprefix("/") or "help"
    name = text(body, "channel_name")
    kind = ChatKind.DM if channel.startswith("D") else ChatKind.GROUP if name.startswith("mpdm-") else ChatKind.CHANNEL
    trigger = text(body, "trigger_id")
    if not user or not channel:
        return
    yield Inbound(
        dedup_key=f"sl:{text(body, 'team_id') or me.team}:{channel}:{trigger}",
        address=Address(platform=Platform.SLACK, kind=kind, chat_id=channel),
        sender=Sender(id=user, name=text(body, "user_name")),
        message_id="",
        text=f"/{given}",
        respond_to=text(body, "response_url") if text(body, "command").lower() == COMMAND else "",
        private_reply=text(body, "response_url"),
    )


def _membership(event: Json, user: str, kind: InboundKind) -> Inbound:
    channel = text(event, "channel")
    return Inbound(
        dedup_key=f"sl:{channel}:{kind}:{text(event, 'event_ts')}",
        address=_address("channel", channel, None),
        sender=Sender(id=user),
        message_id="",
        kind=kind,
        mentioned=False,
        in_thread=True,
    )


def _address(channel_type: object, channel: str, thread: str | None) -> Address:
    kind = _KINDS.get(str(channel_type), ChatKind.CHANNEL)
    if channel.startswith("D"):
        kind = ChatKind.DM
    return Address(platform=Platform.SLACK, kind=kind, chat_id=channel, thread_id=thread)


def _thread(kind: ChatKind, thread: str, ts: str) -> str | None:
    """Returns the thread of the answer: in a channel that of the message, which begins one if there is none."""
    return thread or None if kind is ChatKind.DM else thread or ts


def _name(message: Json) -> str:
    profile = part(message, "user_profile")
    return text(profile, "display_name") or text(profile, "real_name")
