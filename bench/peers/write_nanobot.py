"""Run by nanobot's own Python: writes a home with its own classes. Argument: the folder."""

import os
import sys
from pathlib import Path

home = Path(sys.argv[1])
os.environ["HOME"] = str(home)
workspace = home / "workspace"
workspace.mkdir(parents=True)

from nanobot.session.manager import SessionManager  # noqa: E402  # it looks at HOME when it is imported

manager = SessionManager(workspace)
dm = manager.get_or_create("telegram:111")
made = {"id": "call_9", "type": "function", "function": {"name": "memory", "arguments": '{"text": "tea"}'}}
dm.add_message("user", "Remember that I prefer tea")
dm.add_message("assistant", "", tool_calls=[made])
dm.add_message("tool", "saved", tool_call_id="call_9", name="memory")
dm.add_message("assistant", "Noted.")
manager.save(dm)
terminal = manager.get_or_create("cli:direct")
terminal.add_message("user", "hello")
terminal.add_message("assistant", "Hi, how can I help?")
terminal.metadata["title"] = "A greeting"
manager.save(terminal)
(workspace / "memory").mkdir()
(workspace / "memory" / "MEMORY.md").write_text(
    "# Long-term memory\n\n- The server is called atlas.\n- Ann prefers tea.\n"
)
