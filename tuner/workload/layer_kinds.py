"""Which blocks stand in a layer: an architecture's patterns read against a config. What blocks are
made of is the table's.
"""

from __future__ import annotations

from typing import Any

from humming.checkpoints.config.faults import fault, shown
from tuner.workload.architectures import (
    Every,
    If,
    Leading,
    Listed,
    Members,
    Pattern,
    Trailing,
)
from tuner.workload.sizes import ModelSizes


def blocks_of(sizes: ModelSizes, layer: int) -> list[str]:
    """Names of the blocks in layer number `layer`, in order. Raises ModelError where a list has no
    or a strange value for it.
    """
    found = (_resolved(pattern, sizes, layer) for pattern in sizes.architecture.patterns)
    return [block for block in found if block]


def _resolved(pattern: Pattern, sizes: ModelSizes, layer: int) -> str:
    while not isinstance(pattern, str):
        pattern = _step(pattern, sizes, layer)
    return pattern


def _step(pattern: Pattern, sizes: ModelSizes, layer: int) -> Pattern:
    if isinstance(pattern, Listed):
        return _listed(pattern, sizes, layer)
    if isinstance(pattern, Members):
        return _members(pattern, sizes, layer)
    if isinstance(pattern, Every):
        return _every(pattern, sizes, layer)
    if isinstance(pattern, Leading):
        default = sizes.architecture.switches.get(pattern.key, pattern.default)
        first = _count(pattern.key, default, sizes)
        return pattern.first if layer < first else pattern.then
    if isinstance(pattern, Trailing):
        last = sizes.layers() - _count(pattern.key, 0, sizes)
        return pattern.last if layer >= last else pattern.before
    if isinstance(pattern, If):
        return pattern.then if sizes.holds(pattern.condition, layer) else pattern.otherwise
    return pattern


def _listed(pattern: Listed, sizes: ModelSizes, layer: int) -> Pattern:
    config = sizes.config
    value = config.get(pattern.key)
    if value is None:
        return pattern.other
    if not isinstance(value, (list, str)):
        raise fault(config.name, config.path(pattern.key), "a list of layers", value)
    word = sizes.listed(pattern.key, value, layer)
    block = pattern.blocks.get(_word(word))
    if block is None:
        known = ", ".join(pattern.blocks)
        raise fault(config.name, config.path(f"{pattern.key}.{layer}"), f"one of {known}", word)
    return block


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if isinstance(value, (bool, int)) else shown(value)


def _members(pattern: Members, sizes: ModelSizes, layer: int) -> Pattern:
    config = sizes.config
    value = config.get(pattern.key)
    members = [] if value is None else value if isinstance(value, list) else [value]
    if isinstance(value, str):
        members = [int(word) if word.strip().isdecimal() else word for word in value.split(",")]
    for place, number in enumerate(members):
        if isinstance(number, bool) or not isinstance(number, int):
            path = config.path(f"{pattern.key}.{place}")
            raise fault(config.name, path, "an integer", number)
    return pattern.inside if layer + pattern.base in members else pattern.outside


def _every(pattern: Every, sizes: ModelSizes, layer: int) -> Pattern:
    config = sizes.config
    value = config.get(pattern.key)
    path = config.path(pattern.key)
    if isinstance(value, list):
        flag = sizes.listed(pattern.key, value, layer)
        if not isinstance(flag, int) or flag not in (0, 1):
            raise fault(config.name, f"{path}.{layer}", "0 or 1", flag)
        return pattern.nth if flag else pattern.rest
    step = pattern.default if value is None else value
    if isinstance(step, bool) or not isinstance(step, int):
        raise fault(config.name, path, "an integer", step)
    if step < 0 or (step == 0 and value is not None and pattern.default != 0):
        raise fault(config.name, path, "at least 1", step)
    return pattern.nth if step and (layer + pattern.offset) % step == 0 else pattern.rest


def _count(key: str, default: Any, sizes: ModelSizes) -> int:
    config = sizes.config
    value = config.get(key)
    number = default if value is None else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise fault(config.name, config.path(key), "an integer", number)
    if number < 0:
        raise fault(config.name, config.path(key), "at least 0", number)
    return number
