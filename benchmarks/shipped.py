"""`python -m benchmarks.shipped FILE`: makes a shipped table of `humming/tables/` from what
`humming-tune export --table` wrote on the device.

Only records of this tree's kernel sources are taken, each those of its own kernel: others would
never serve. Where a file changed since, but not what a record's kernel takes from it,
`--measured-at COMMIT` takes the records whose kernels are the same text, header for header; with
`--compiled` those that NVRTC makes the same machine code of, byte for byte.
`--check` says whether the tables that are there still fit. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from humming.dispatch.pointers import replace_file
from humming.dispatch.shipped import FOLDER, file_of
from humming.dispatch.tables import (
    Interval,
    Origin,
    TableEntry,
    TunedTable,
    encode,
    read_table,
)
from humming.errors import HummingError, TableError
from humming.jit.source_units import source_hash
from humming.spec.sources import same_sources, units_of

PROJECT = "humming-tune"
"""What stands for the host in shipped tables: whose evidence it is, not which machine's."""


def ship(exported: TunedTable, folder: Path) -> list[Path]:
    """Writes one table into `folder` for each device of `exported`. Raises TableError where no
    record is of this tree's kernels."""
    by_device: dict[str, list[TableEntry]] = defaultdict(list)
    for entry in exported.entries:
        ours = source_hash(entry.identity.device.kind)
        intervals = tuple(one for one in entry.intervals if _fits(entry, one, ours))
        if intervals:
            kept = replace(entry, intervals=intervals)
            by_device[entry.identity.device.name].append(kept)
    if not by_device:
        raise TableError(
            f"a shipped table must be of this tree's kernel sources, but none of "
            f"{len(exported.entries)} layers is; tune and export again with this tree"
        )
    origins = {r: Origin(PROJECT, origin.promoted_at) for r, origin in exported.origins.items()}
    written = []
    for name, entries in sorted(by_device.items()):
        written.append(folder / file_of(name).name)
        replace_file(written[-1], encode(entries, origins)[1])
    return written


def fits(entry: TableEntry) -> bool:
    """Whether all of an entry was measured with this tree's sources of its kernels."""
    ours = source_hash(entry.identity.device.kind)
    return all(_fits(entry, interval, ours) for interval in entry.intervals)


def _fits(entry: TableEntry, interval: Interval, sources: str) -> bool:
    """Whether an interval was measured with `sources`, as far as its kernel is made of them."""
    units = units_of(interval.config.family, entry.problem)
    return same_sources(entry.identity.source_hash, sources, units)


def of_these_kernels(
    table: TunedTable, theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> TunedTable:
    """`table` as evidence of this tree's kernels: the records whose kernels are rendered alike by
    the tree that was measured (`theirs`) and by this one (`ours`); the others are left out."""
    entries = []
    for entry in table.entries:
        kind = entry.identity.device.kind
        same = tuple(
            interval
            for interval in entry.intervals
            if _fits(entry, interval, theirs["source_hash"][kind])
            and theirs["keys"][interval.record] == ours["keys"][interval.record]
        )
        identity = replace(entry.identity, source_hash=ours["source_hash"][kind])
        if same:
            entries.append(TableEntry(identity, entry.problem, same))
    return TunedTable(table.id, tuple(entries), table.path, table.origins)


def kernel_keys(file: Path, tree: Path, compiled: bool = False) -> dict[str, Any]:
    """What `benchmarks/kernel_keys.py` says of the table `file` for the packages in `tree`."""
    script = Path(__file__).with_name("kernel_keys.py")
    done = subprocess.run(
        [sys.executable, str(script), str(file), *(["--compiled"] if compiled else [])],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured_at(file: Path, commit: str, compiled: bool = False) -> TunedTable:
    """The table `file`, which was measured at `commit`, as far as it holds for this tree: by the
    text of kernels, or by what they compile to."""
    root = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", commit, "humming"], cwd=root, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "x", "-C", folder], input=packed.stdout, check=True)
        theirs = kernel_keys(file, Path(folder), compiled)
    return of_these_kernels(read_table(file), theirs, kernel_keys(file, root, compiled))


def outdated(folder: Path = FOLDER) -> list[str]:
    """A line for each table of `folder` of which some layers no longer serve."""
    lines = []
    for path in sorted(folder.glob("*.json")):
        entries = read_table(path).entries
        old = sum(not fits(entry) for entry in entries)
        if old:
            lines.append(f"{path.name}: {old} of {len(entries)} layers are of other kernel sources")
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """The command line: 1 where `--check` finds an outdated table, 2 for a file of no use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="what export --table wrote")
    parser.add_argument("--measured-at", metavar="COMMIT", help="the tree that was measured")
    parser.add_argument("--compiled", action="store_true", help="compare machine code, not text")
    parser.add_argument("--check", action="store_true", help="look at the shipped tables")
    given = parser.parse_args(words)
    try:
        if given.check or given.file is None:
            lines = outdated()
            print("\n".join(lines) or "every shipped table is of this tree's kernel sources")
            return 1 if lines else 0
        at = given.measured_at
        table = (
            read_table(given.file) if at is None else measured_at(given.file, at, given.compiled)
        )
        for path in ship(table, FOLDER):
            print(f"wrote {path}: {len(read_table(path).entries)} layers")
    except HummingError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
