"""The command `repro`: one record as a script that anyone can run: its kernel's source with all
headers, its inputs, the check against float64, and the timing. Opens no database when it runs."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Any

from humming.errors import UsageError
from humming.jit.identity import here
from humming.jit.source import KERNELS_DIR, render
from humming.jit.source_units import source_hash
from humming.spec.canonical import canonical_json, plain
from humming.spec.config import KernelConfig, config_to_dict
from humming.spec.identity import Identity, differences
from humming.spec.problem import Problem
from humming.spec.sources import same_sources, units_of
from humming.version import __version__
from tuner.store.records import Measurement, Winner
from tuner.store.store import Store

LEAST_PREFIX = 4
"""Letters of a record's id that must be given."""

_INCLUDE = re.compile(r'^#include "(humming/[^"]+)"[^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^#pragma once[^\n]*\n", re.MULTILINE)

_SCRIPT = Template(
    '''"""Record $record of humming-tune $version.

$about

Run it with Python where humming-tune is installed: it compiles SOURCE, which may be edited, checks
the kernel against float64 on fresh random data, and times it on cold weights. It reads no database.
"""

import json
import statistics
import sys
import time

from humming.jit.cache import compiled_source
from humming.jit.detect import find_device
from humming.jit.identity import serving_device
from humming.jit.load import load
from humming.jit.nvrtc import nvrtc_arch
from humming.jit.source import KernelSource
from humming.spec.problem import Problem
from tuner.worker.bench_experts import bench_for
from tuner.worker.messages import Open, Trial

PROBLEM = json.loads(r"""$problem""")
CONFIG = json.loads(r"""$config""")
KERNEL = json.loads(r"""$kernel""")
SPAN = $span  # tokens over which the kernel is checked: from, and up to but without
RECORDED_US = $us
SOURCE = r"""
$source"""


def main() -> int:
    problem = Problem(**PROBLEM)
    kind = "cpu" if KERNEL["language"] == "c++" else "auto"
    device = serving_device($threads) if kind == "cpu" else find_device(kind)
    source = KernelSource(
        family=KERNEL["family"],
        text=SOURCE,
        language=KERNEL["language"],
        flags=tuple(KERNEL["flags"]),
        static=KERNEL["static"],
    )
    arch = device.arch if kind == "cpu" else nvrtc_arch(source, device)
    start = time.perf_counter()
    compiled = compiled_source(source, arch)
    print(f"compiled for {device.name} in {time.perf_counter() - start:.1f} s: {compiled.path}")
    load(compiled, device)
    bench = bench_for(Open(problem, *SPAN), device)
    result = bench.trial(Trial(compiled, CONFIG.get("block_m", 1)))
    print(f"outcome: {result.outcome} {result.detail}")
    if result.outcome != "ok":
        return 1
    us = statistics.median(result.samples_us)
    print(f"largest error: {result.error:.3g} of its bound")
    print(f"{us:.2f} us now, {RECORDED_US} us in the record; conditions {dict(result.conditions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''
)


def repro(store: Store, prefix: str) -> tuple[str, list[str]]:
    """The script of the record whose id begins with `prefix`, and what to know before it is run.

    Raises UsageError where no record has such an id, or several, or its record has no kernel.
    """
    record, identity = _find(store, prefix)
    config = record.config
    if config is None:
        raise UsageError(f"record {record.id} is torch's own time and has no kernel; name another")
    problem = record.problem
    return _script(record, problem, config, identity), _notes(identity, config.family, problem)


def inlined(text: str, folder: Path) -> str:
    """`text` with each header of `folder` in the place of its first #include."""
    seen: set[str] = set()

    def body(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return f"// {name}: above"
        seen.add(name)
        header = _ONCE.sub("", (folder / name).read_text("utf-8"))
        return f"// {name}\n{_INCLUDE.sub(body, header)}"

    return _INCLUDE.sub(body, text)


def _find(store: Store, prefix: str) -> tuple[Measurement | Winner, Identity]:
    if len(prefix) < LEAST_PREFIX:
        raise UsageError(
            f"a record is named by at least {LEAST_PREFIX} letters of its id, but got '{prefix}'; "
            "humming-tune verify --json and the tuned table show ids"
        )
    found = store.find(prefix)
    if not found:
        raise UsageError(f"no record of {store.shown} has an id that begins with '{prefix}'")
    if len(found) > 1:
        ids = ", ".join(record.id for record, _ in found[:3])
        raise UsageError(f"'{prefix}' begins the ids of {len(found)} records ({ids}); write more")
    return found[0]


def _script(
    record: Measurement | Winner, problem: Problem, config: KernelConfig, identity: Identity
) -> str:
    source = render(config, problem)
    kind = "cpu" if source.language == "c++" else "cuda"
    text = inlined(source.text, KERNELS_DIR / kind / "include")
    evidence: Any = record.evidence if isinstance(record, Winner) else {}
    span = tuple(evidence.get("serves", (problem.m, problem.m + 1)))
    kernel = {
        "family": source.family,
        "language": source.language,
        "flags": list(source.flags),
        "static": dict(source.static),
    }
    return _SCRIPT.substitute(
        record=record.id,
        version=__version__,
        about=_about(record, problem, config, identity),
        problem=canonical_json(plain(problem)),
        config=canonical_json(config_to_dict(config)),
        kernel=canonical_json(kernel),
        span=span,
        us=record.us,
        threads=identity.device.threads,
        source=text.replace('"""', "'''"),
    )


def _about(
    record: Measurement | Winner, problem: Problem, config: KernelConfig, identity: Identity
) -> str:
    outcome = "served" if isinstance(record, Winner) else record.outcome
    detail = "" if isinstance(record, Winner) else record.detail.replace('"""', "'''")
    lines = [
        f"{problem.format} n={problem.n} k={problem.k} m={problem.m} {problem.activation_dtype}, "
        f"config {config}: {outcome}",
        f"measured on {identity.device.name} with {identity.compiler_version or 'no compiler'}",
        *([f"it said: {detail}"] if detail else []),
    ]
    return "\n".join(lines).replace("\\", "/")


def _notes(identity: Identity, family: str, problem: Problem) -> list[str]:
    """What differs between the record's machine and this one's software."""
    notes = []
    units = units_of(family, problem)
    if not same_sources(identity.source_hash, source_hash(identity.device.kind), units):
        notes.append(
            "the kernel sources have changed since this record was made: the script has today's"
        )
    if identity.device.kind == "cpu":
        unlike = differences(identity, here())
        notes += [
            f"{field} was {theirs}, here it is {ours}"
            for field, (theirs, ours) in unlike.items()
            if field != "source_hash"
        ]
    return notes
