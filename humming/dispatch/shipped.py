"""Tables that come with the package, by device: they serve where the user's own says nothing.

They are the project's own evidence, made by `python -m benchmarks.shipped`, and only read here.
What a table means for a layer is dispatcher.py.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from pathlib import Path

from humming.dispatch.intervals import TunedTable
from humming.dispatch.tables import read_table
from humming.errors import TableError
from humming.spec.device import Device

FOLDER = Path(__file__).parents[1] / "tables"


def shipped_table(device: Device) -> TunedTable | None:
    """The package's own table for devices of this name; None where it has none."""
    return _read(file_of(device.name))


def file_of(device_name: str) -> Path:
    """Where the table of devices of this name is: `nvidia_h200.json` for an NVIDIA H200."""
    slug = re.sub(r"[^a-z0-9]+", "_", device_name.lower()).strip("_")
    return FOLDER / f"{slug}.json"


@lru_cache(maxsize=8)
def _read(path: Path) -> TunedTable | None:
    if not path.is_file():
        return None
    try:
        return read_table(path)
    except TableError as error:
        warnings.warn(f"{error}; the heuristic serves instead", RuntimeWarning, stacklevel=3)
        return None
