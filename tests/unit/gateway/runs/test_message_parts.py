"""Which files of a message the model is shown."""

import os
from pathlib import Path

from gateway.runs.request import parts_to_show
from sessions.messages import Attachment, AttachmentKind
from sessions.records import Message, MessageState, Role


async def shown(workspaces: Path, **of_file: str) -> int:
    file = Attachment(kind=AttachmentKind.IMAGE, name="file", mime="image/png", **of_file)
    message = Message(
        id=1,
        session_id="s",
        run_id="r",
        role=Role.USER,
        content="look",
        tool_calls=None,
        tool_call_id=None,
        tool_name=None,
        token_count=None,
        created_at=1,
        sender=None,
        attachments=(file,),
        state=MessageState.DONE,
        idem_key=None,
    )
    return len((await parts_to_show([message], "r", every=True, workspaces=workspaces))[1])


async def test_only_files_of_a_workspace_and_addresses_of_the_web_are_shown(tmp_path: Path):
    inbox = tmp_path / "workspace" / "agent:main" / "inbox"
    inbox.mkdir(parents=True)
    (inbox / "cat.png").write_bytes(b"cat")
    (tmp_path / "api_key").write_text("secret")
    (inbox / "link.png").symlink_to(tmp_path / "api_key")
    os.mkfifo(inbox / "pipe.png")
    workspaces = tmp_path / "workspace"
    assert await shown(workspaces, path=str(inbox / "cat.png")) == 1
    for path in (tmp_path / "api_key", inbox / "link.png", inbox / "../../../api_key", inbox / "pipe.png", inbox):
        assert await shown(workspaces, path=str(path)) == 0
    assert await shown(workspaces, url="https://pictures.example/cat.png") == 1
    assert await shown(workspaces, url=f"file://{tmp_path}/api_key") == 0
