"""Identity of evidence, a rule per field, and the tier in which one machine may use another's.
Reading it off a machine is jit/."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from humming.spec.canonical import content_hash, plain
from humming.spec.device import Device
from humming.spec.sources import differing, same_sources

Tier = Literal["exact", "compatible", "stale", "none"]
TIERS: tuple[Tier, ...] = ("exact", "compatible", "stale", "none")
"""From best to worst. `stale` is served, but is first in line to be verified; `none` is not
served."""

RULES: dict[str, Tier] = {
    "device.kind": "none",
    "device.name": "none",
    "device.arch": "none",
    "device.isa": "none",
    "device.threads": "none",
    "device.cache_bytes": "none",
    "device.l2_bytes_per_core": "none",
    "device.compute_capability": "none",
    "device.sm_count": "none",
    "device.smem_bytes_per_block": "none",
    "device.smem_bytes_per_sm": "none",
    "device.registers_per_sm": "none",
    "device.memory_clock_khz": "stale",
    "device.power_limit_w": "stale",
    "driver": "stale",
    "compiler": "stale",
    "compiler_version": "stale",
    "source_hash": "none",
    "policy": "compatible",
    "product_version": "compatible",
}
"""Field -> the best tier that is left when this field differs."""


POLICIES = {"cpu": "cpu-cold-median-3", "cuda": "cuda-cold-graph-median-3"}
"""Device kind -> name of the timing policy that its measurements follow (tuner/measuring/policy.py
says what it is); a change of a policy is a new name."""


@dataclass(frozen=True)
class Identity:
    """What a measurement is true of.

    `source_hash` holds a hash for each unit of kernel sources, as sources.py spells and compares
    them; `policy` names the timing policy; `compiler_version` is the full version text.
    """

    device: Device
    driver: str
    compiler: str
    compiler_version: str
    source_hash: str
    product_version: str
    policy: str

    @cached_property
    def id(self) -> str:
        """Content hash of everything but the device's uuid."""
        return content_hash(self._fields())

    def _fields(self) -> dict[str, object]:
        fields: dict[str, object] = plain(self)
        device = fields.pop("device")
        assert isinstance(device, dict)
        del device["uuid"]
        return {**{f"device.{key}": value for key, value in device.items()}, **fields}


def seen_from(record: Identity, here: Identity, units: Iterable[str]) -> Identity:
    """`record` as the machine `here` sees it, for a kernel of `units`: where these are of the same
    sources there, other kernels' sources are no difference."""
    if same_sources(record.source_hash, here.source_hash, units):
        return replace(record, source_hash=here.source_hash)
    return record


def differences(record: Identity, here: Identity) -> dict[str, tuple[object, object]]:
    """Field -> (the record's value, this machine's value) for every field that differs; of sources
    the units that do."""
    theirs, ours = record._fields(), here._fields()
    found = {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}
    if "source_hash" in found:
        found["source_hash"] = differing(record.source_hash, here.source_hash)
    return found


def tier(record: Identity, here: Identity) -> Tier:
    """How far `record` may be used on the machine `here`."""
    worst = max((TIERS.index(RULES[name]) for name in differences(record, here)), default=0)
    return TIERS[worst]
