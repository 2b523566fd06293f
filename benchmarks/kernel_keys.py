"""`python benchmarks/kernel_keys.py TABLE`: a hash of the kernel source of every record of a table,
as the tree on PYTHONPATH renders it. Two trees that print the same compile the same kernels."""

from __future__ import annotations

import json
import sys

from humming.dispatch.tables import read_table
from humming.jit.cache import source_key
from humming.jit.identity import here
from humming.jit.source import companions, render


def main(path: str) -> None:
    """Prints {"source_hash": {kind: hash}, "keys": {record: [hash, ...]}}."""
    keys: dict[str, list[str]] = {}
    hashes: dict[str, str] = {}
    for entry in read_table(path).entries:
        device = entry.identity.device
        hashes[device.kind] = hashes.get(device.kind) or here(device).source_hash
        for interval in entry.intervals:
            source = render(interval.config, entry.problem.at(interval.m))
            all_of_it = (source, *companions(source))
            keys[interval.record] = [source_key(one, device.arch) for one in all_of_it]
    print(json.dumps({"source_hash": hashes, "keys": keys}))


if __name__ == "__main__":
    main(sys.argv[1])
