"""The keys under which configs list what they leave in 16 bits. What a list means is in
names.py.
"""

from __future__ import annotations

from humming.checkpoints.config.names import NameList, path_names
from humming.checkpoints.config.source import Source
from tuner.workload.values import Values


class Excluding(Values):
    modules_to_not_convert: list[str] | None = None
    ignored_layers: list[str] | None = None
    ignore: list[str] | None = None
    exclude_modules: list[str] | None = None

    def listed(self) -> list[str]:
        """All names, under whatever key."""
        return [name for key in Excluding.model_fields for name in getattr(self, key) or []]


def excluded(values: Excluding, source: Source) -> NameList:
    """The modules that a config leaves out, under whatever key."""
    return path_names(values.listed(), source.file, source.path("modules_to_not_convert"))
