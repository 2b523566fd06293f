"""The content hash of each unit of kernel sources: of its template, and of every header that this
may include. What a unit is, and how texts of them compare, is spec/sources.py.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from humming.jit.source import KERNELS_DIR
from humming.spec.canonical import content_hash
from humming.spec.sources import WHOLE, text_of

_SUFFIXES = (".j2", ".h", ".cuh")
_DIGITS = 12
_PICK = re.compile(r"\{\{ (\w+) \}\}")
_INCLUDE = re.compile(r'^#include "(humming/[^"]+)"|^\{% include "([^"]+)" %\}', re.MULTILINE)

_PRODUCTS = ("skinny", "mma", "mma_bytes", "wgmma", "wgmma8")
_OTHERS = ("dequantize", "scaled_mm", "experts", "quantize_input")
_TEMPLATES: dict[str, dict[str, str]] = {
    "cpu": {
        "cpu": "gemm.cpp.j2",
        "cpu_experts": "experts.cpp.j2",
        "blas": "dequantize.cpp.j2",
        "pool": "pool.cpp.j2",
    },
    "cuda": {
        **{unit: f"{unit}.cu.j2" for unit in (*_PRODUCTS, *_OTHERS)},
        **{f"{unit}_experts": f"{unit}.cu.j2" for unit in _PRODUCTS},
    },
}
"""Device kind -> unit -> the template that it is rendered from."""
_PICKED: dict[str, tuple[str, ...]] = {
    "plan_header": ("skinny_plan", "warpgroup_plan"),
    "weights_header": ("weights_registers", "weights_ring"),
    "mainloop_header": ("skinny_block", "skinny_warpgroup"),
}
"""What a name in an include of a template stands for; one that is not here, for any file there."""


_ENTRIES = {"skinny_experts": ("skinny_experts", "skinny_walk")}
"""The entries of units that have others than that of their own name."""


@lru_cache(maxsize=4)
def source_hash(kind: str, kernels: Path = KERNELS_DIR) -> str:
    """What evidence is measured with on devices of `kind` ("cpu", "cuda"): the hash of each unit,
    and of all files. A change of one unit leaves the evidence of others alone."""
    folder = kernels / kind
    every = [path for path in folder.rglob("*") if path.suffix in _SUFFIXES]
    parts = {unit: _hash(folder, unit_files(folder, unit))[:_DIGITS] for unit in _TEMPLATES[kind]}
    return text_of({**parts, WHOLE: _hash(folder, every)})


def unit_files(folder: Path, unit: str) -> list[Path]:
    """The template of `unit` in the folder of its device kind, and all that it may include,
    whatever is picked when it is rendered."""
    picked = {**_PICKED, "entry": _ENTRIES.get(unit, (unit,))}
    found: dict[Path, None] = {}
    waiting = [folder / _TEMPLATES[folder.name][unit]]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            waiting += _included(folder, path, picked)
    return list(found)


def _included(folder: Path, path: Path, picked: Mapping[str, tuple[str, ...]]) -> Iterator[Path]:
    for header, template in _read(path)[1]:
        if template:
            yield folder / template
            continue
        names = _PICK.findall(header)
        if not names:
            yield folder / "include" / header
        for choice in picked.get(names[0], ("*",)) if names else ():
            yield from sorted((folder / "include").glob(_PICK.sub(choice, header)))


def _hash(folder: Path, files: Iterable[Path]) -> str:
    named = sorted((path.relative_to(folder).as_posix(), path) for path in files)
    return content_hash([[name, _read(path)[0]] for name, path in named])


@lru_cache(maxsize=1024)
def _read(path: Path) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The SHA-256 of a file, and its includes: of a header, or of a template."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), tuple(_INCLUDE.findall(content.decode("utf-8")))
