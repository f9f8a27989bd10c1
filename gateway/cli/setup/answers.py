"""Writes confirmed answers into the home, one at a time, and reads what is there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.service_view import service_sources
from gateway.config.editing import edit, example, schema
from gateway.config.reading import Loaded, read
from gateway.config.sources import YAML, Sources
from gateway.home import prepare_home, write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    home: Path
    environ: Mapping[str, str]

    def begin(self) -> None:
        """Writes the documented configuration, where there is none yet."""
        prepare_home(self.home)
        if not (self.home / YAML).exists():
            write_private(self.home / YAML, example())
            write_private(self.home / "config.schema.json", schema())

    @property
    def loaded(self) -> Loaded:
        """Reads the configuration. Raises BadConfig."""
        return read(self._sources)

    @property
    def _sources(self) -> Sources:
        return service_sources(self.home, self.environ)

    def tried(self, values: Mapping[str, str]) -> Loaded:
        """What the configuration would be with these values. Nothing is written. Raises BadConfig."""
        return read(edit(self._sources, values).sources) if values else self.loaded

    def keep(self, values: Mapping[str, str]) -> None:
        """Writes all values or none: secrets into .env, comments kept. Raises BadConfig when the result could not be used."""
        # Every edit was made and checked in memory; from here on only a full disk can stop it.
        edit(self._sources, values).write(self.home)
