"""Files to and from Slack."""

import json

from adapters.base import TryLater, Undeliverable
from adapters.payload import part, parts, text
from adapters.slack.web import SlackWeb
from sessions.messages import Attachment


async def upload(web: SlackWeb, channel: str, thread: str | None, name: str, data: bytes, comment: str) -> str:
    """Uploads the file and returns its id. The last of three calls shares it into the chat; before that nobody sees it."""
    try:
        place = await web.query("files.getUploadURLExternal", filename=name, length=len(data))
        status = await web.post(text(place, "upload_url"), data=data)
    except TryLater as error:  # not ambiguous any more: up to here nobody sees anything
        raise TryLater(str(error), after=error.after) from None
    if status != 200:
        raise TryLater(f"Slack did not take the file ({status}).")
    shared = await web.query(
        "files.completeUploadExternal",
        files=json.dumps([{"id": text(place, "file_id"), "title": name}]),
        channel_id=channel,
        thread_ts=thread,
        initial_comment=comment or None,
    )
    found = parts(shared, "files")
    return text(found[0], "id") if found else text(place, "file_id")


async def download(web: SlackWeb, attachment: Attachment, limit: int) -> bytes:
    """Raises Undeliverable where the file is gone, larger, or lies at a host that must not see the token."""
    file_id, _, address = attachment.ref.partition("|")
    if not address:
        found = await web.query("files.info", file=file_id)
        address = text(part(found, "file"), "url_private_download")
    if not web.is_slacks(address):
        raise Undeliverable("Slack names an address for the file that is not Slack's.")
    status, mime, data = await web.get(address, limit)
    if status >= 500 or status == 429:
        raise TryLater(f"Slack has an outage ({status}).", after=5.0)
    # Without the permission Slack answers 200 with its login page.
    if status != 200 or (mime == "text/html" and attachment.mime != "text/html"):
        raise Undeliverable("Slack does not give the file. The app may lack the permission files:read.")
    if len(data) > limit:
        raise Undeliverable(f"{attachment.name} is larger than {limit} bytes.")
    return data
