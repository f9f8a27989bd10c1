"""A real MCP server: `python mcp_server.py stdio|http [PORT]`. What it misbehaves in is in its environment, as MISBEHAVES."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

OUTPUT = os.dup(1)  # the library points 1 elsewhere
MISBEHAVES = os.environ.get("MISBEHAVES", "")


def misbehave() -> None:
    if MISBEHAVES == "hangs":
        time.sleep(3600)
    if MISBEHAVES == "dies":
        sys.exit("no key was given")
    if MISBEHAVES == "stays":  # it ignores that its input has ended, and that it is asked to end
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
    while MISBEHAVES == "floods":
        os.write(OUTPUT, b"x" * 65_536)


if __name__ == "__main__":
    misbehave()  # before the library is loaded, which takes a while

from mcp.server import MCPServer  # noqa: E402
from mcp.server.mcpserver import Context  # noqa: E402

server = MCPServer("fake")


@server.tool()
def echo(text: str = "") -> str:
    """Says the same again."""
    return f"{text} {text}"


@server.tool()
def who() -> str:
    """Returns the process and its environment."""
    return json.dumps({"pid": os.getpid(), "env": dict(os.environ)})


@server.tool()
async def wait(seconds: float) -> str:
    """Answers later."""
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
async def hang() -> str:
    """Never answers, and neither does anything else then."""
    time.sleep(3600)  # noqa: ASYNC251  # on purpose
    return ""


@server.tool()
def die() -> str:
    """Ends the server."""
    os._exit(3)


@server.tool()
def flood(how: str) -> str:
    """Sends too much: lines, a long line, or a long answer."""
    while how == "lines":
        os.write(
            OUTPUT, b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n' * 500
        )
    while how == "line":
        os.write(OUTPUT, b"x" * 65_536)
    return "y" * 1_000_000


@server.tool()
async def grow(context: Context) -> str:
    """Adds another tool, and says so."""
    server.add_tool(echo, name="echo.more", description="Says it once more.")
    await context.session.send_tool_list_changed()
    return "grown"


if __name__ == "__main__":
    if MISBEHAVES == "many":
        for number in range(2_000):
            server.add_tool(echo, name=f"echo_{number}", description="long " * 300)
    if sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
        while MISBEHAVES == "stays":
            time.sleep(1)
