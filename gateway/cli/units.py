"""The unit files of systemd: made from those that are shipped, for this program, this home and this name."""

import stat
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.error_messages import Wrong

SHIPPED_PROGRAM = "/opt/hermes-gateway/.venv/bin/hermes"
SHIPPED_HOME = "/var/lib/hermes-gateway"
SHIPPED_NAME = "hermes-gateway"
OURS = "# Written by hermes-gateway."
_HOMES = (Path("/home"), Path("/root"))
_OWN_TO_A_SERVICE = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108  # nothing is put there
_PACKAGED = Path(__file__).parents[1] / "systemd"
_CHECKED_OUT = Path(__file__).parents[2] / "systemd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of one instance. `user`: of the user's own systemd, else of the system's. `instance`: empty for the usual one.
    `runs_from`: the folders and programs that the service has to read."""

    user: bool
    instance: str
    program: str
    runs_from: tuple[Path, ...]
    home: Path

    @property
    def name(self) -> str:
        return f"{SHIPPED_NAME}-{self.instance}" if self.instance else SHIPPED_NAME

    @property
    def home_of_service(self) -> Path:
        return self.home if self.user else Path("/var/lib") / self.name

    @property
    def folder(self) -> Path:
        return Path.home() / ".config/systemd/user" if self.user else Path("/etc/systemd/system")

    @property
    def files(self) -> dict[Path, str]:
        """Returns where each unit belongs, and what it says."""
        return {self.folder / file.replace(SHIPPED_NAME, self.name): self._text(file) for file in _FILES}

    def _text(self, file: str) -> str:
        source = _PACKAGED if _PACKAGED.is_dir() else _CHECKED_OUT
        path = source / "user" / file if self.user and (source / "user" / file).exists() else source / file
        text = path.read_text("utf-8").replace(SHIPPED_PROGRAM, self.program)
        if any(path.is_relative_to(home) for path in self.runs_from for home in _HOMES):
            # The usual protection hides /home from the service, and with it a program that is installed there.
            text = text.replace("ProtectHome=yes", "ProtectHome=read-only")
        if self.user:
            text = text.replace(f"Environment=HERMES_HOME={SHIPPED_HOME}", f'Environment="HERMES_HOME={self.home}"')
        ours, rest = text.split("\n", 1)
        # Only in these places: the name also stands in the path of the program, which stays.
        for words in ("User=", "StateDirectory=", "/var/lib/", " "):
            rest = rest.replace(f"{words}{SHIPPED_NAME}/", f"{words}{self.name}/")
            rest = rest.replace(f"{words}{SHIPPED_NAME}\n", f"{words}{self.name}\n")
            rest = rest.replace(f"{words}{SHIPPED_NAME} ", f"{words}{self.name} ")
        return f"{ours}\n{rest}"

    def out_of_reach(self) -> str:
        """Why a user without any rights of its own, as a service of the system is, could not run the program; "" if it can."""
        for path in self.runs_from:
            if any(path.is_relative_to(folder) for folder in _OWN_TO_A_SERVICE):
                return f"{path} is in a folder for temporary files, of which a service has its own"
            for each in (path, *path.parents):
                mode = each.stat().st_mode
                if not mode & stat.S_IXOTH or not (each != path or mode & stat.S_IROTH):
                    return f"{each} is closed to other users, and {path} is needed"
        return ""


_FILES = ("hermes-gateway.service", "hermes-gateway-backup.service", "hermes-gateway-backup.timer")


def write(units: Units) -> list[Path]:
    """Writes the units. Raises Wrong, and writes nothing, when a file of somebody else is in the way."""
    for path in units.files:
        require_ours(path)
    for path, text in units.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        path.chmod(0o644)
    return list(units.files)


def require_ours(path: Path) -> None:
    """Raises Wrong for a file that this program has not written."""
    if path.exists() and not path.read_text("utf-8", "replace").startswith(OURS):
        raise Wrong(
            f"{path} is there and was not written by hermes-gateway. Choose another name with --name, or move the file away."
        )
