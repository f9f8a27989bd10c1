"""Run by Hermes Agent's own Python: writes a home with its own classes. Argument: the folder."""

import os
import sys
from pathlib import Path

home = Path(sys.argv[1])
home.mkdir(parents=True)
os.environ["HERMES_HOME"] = str(home)

from hermes_state import SessionDB  # noqa: E402  # it reads HERMES_HOME when it is imported
from tools.memory_tool import MemoryStore  # noqa: E402

BEGAN = 1_767_950_000.25
db = SessionDB(home / "state.db")
cli = db.create_session(
    "20260109_091320_ab12cd", "cli", model="anthropic/claude-opus-4.6", system_prompt="You are kind."
)
made = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "web_search", "arguments": '{"query": "weather Oslo"}'},
}
db.append_message(cli, "user", "What is the weather in Oslo?", timestamp=BEGAN)
db.append_message(cli, "assistant", "", tool_calls=[made], timestamp=BEGAN + 1)
db.append_message(cli, "tool", "Rain, 3 degrees.", tool_name="web_search", tool_call_id="call_1", timestamp=BEGAN + 2)
db.append_message(cli, "assistant", "It rains, 3 degrees.", timestamp=BEGAN + 3, reasoning="not for others")
db.set_session_title(cli, "Weather in Oslo")
db.end_session(cli, "user_exit")

dm = db.create_session("20260110_101010_telegr", "telegram", user_id="111", model="m")
peer = {"session_key": "agent:main:telegram:dm:111", "chat_id": "111", "chat_type": "dm", "display_name": "Ann"}
db.record_gateway_session_peer(dm, source="telegram", user_id="111", **peer)
db.append_message(dm, "user", "Remember that I prefer tea ☕", timestamp=BEGAN + 86_400, platform_message_id="5")
db.append_message(dm, "assistant", "Noted.", timestamp=BEGAN + 86_401)

group = db.create_session("20260111_101010_grp", "telegram", user_id="9", model="m")
peer = {"session_key": "agent:main:telegram:group:-42", "chat_id": "-42", "chat_type": "group"}
db.record_gateway_session_peer(group, source="telegram", user_id="9", **peer)
db.append_message(group, "user", "[Bob] hello", timestamp=BEGAN + 90_000)
db.append_message(group, "assistant", "Hi Bob", timestamp=BEGAN + 90_001)
db.create_session("20260112_101010_empty", "cli")

notes = MemoryStore()
notes.load_from_disk()
notes.add("memory", "The server is called atlas.")
notes.add("user", "Ann prefers tea.")
