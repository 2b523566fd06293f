"""`python benchmarks/kernel_keys.py TABLE [--compiled]`: a hash of the kernel source of every
record of a table, as the tree on PYTHONPATH renders it, or of the machine code that NVRTC makes of
it. Two trees that print the same run the same kernels."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from humming.dispatch.tables import TunedTable, read_table
from humming.jit.cache import source_key
from humming.jit.identity import here
from humming.jit.nvrtc import compile_cubin, nvrtc_arch
from humming.jit.source import KernelSource, companions, render
from humming.spec.device import Device

Piece = tuple[str, KernelSource, Device]
_PATIENCE_S = 600.0


def pieces(table: TunedTable) -> dict[str, list[Piece]]:
    """Record -> (key of the source, source, device) of each of its kernels."""
    found = {}
    for entry in table.entries:
        device = entry.identity.device
        for interval in entry.intervals:
            source = render(interval.config, entry.problem.at(interval.m))
            all_of_it = (source, *companions(source))
            found[interval.record] = [(source_key(s, device.arch), s, device) for s in all_of_it]
    return found


def machine_code(piece: Piece) -> tuple[str, str]:
    """The key of a source, and a hash of what it compiles to; of a CPU's kernel the key again, as
    only NVRTC's output is the same each time."""
    key, source, device = piece
    if device.kind != "cuda":
        return key, key
    cubin = compile_cubin(source, nvrtc_arch(source, device), _PATIENCE_S)
    return key, hashlib.sha256(cubin.data).hexdigest()


def main() -> None:
    """Prints {"source_hash": {kind: hash}, "keys": {record: [hash, ...]}}."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--compiled", action="store_true", help="compare machine code, not text")
    given = parser.parse_args()
    table = read_table(given.table)
    found = pieces(table)
    each = {piece[0]: piece for of_record in found.values() for piece in of_record}
    shown = {key: key for key in each}
    if given.compiled:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            shown = dict(pool.map(machine_code, each.values()))
    keys = {record: [shown[piece[0]] for piece in of_record] for record, of_record in found.items()}
    devices = {entry.identity.device.kind: entry.identity.device for entry in table.entries}
    hashes = {kind: here(device).source_hash for kind, device in devices.items()}
    print(json.dumps({"source_hash": hashes, "keys": keys}))


if __name__ == "__main__":
    main()
