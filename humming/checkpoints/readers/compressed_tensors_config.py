"""compressed-tensors' config: which group of `config_groups` a module is in, and what it says of
weights and activations. Tensors are read in compressed_tensors.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from humming.checkpoints.config.faults import fault, missing
from humming.checkpoints.config.names import exact_names
from humming.checkpoints.config.source import Source
from humming.checkpoints.scopes import CHANNEL, TENSOR, Scope
from humming.checkpoints.stored import StoredModule

CLASSES = ("Linear", "LinearBase", "FusedMoE")
"""Targets that name a class; every module that is read here is of one."""

_SPARSE = ("marlin-24", "sparse-24-bitmask", "sparse-bitmask")
_MX = {4: "mxfp4", 6: "mxfp6e2m3", 8: "mxfp8e4m3"}
_ONLINE = ("input", "output")


@dataclass(frozen=True)
class Group:
    """`kind` "int" or "float" of `bits`; `float_format` where it is mx or nvfp4; `activation` as a
    format's second half, or None."""

    kind: str
    bits: int
    symmetric: bool
    scope: Scope
    float_format: str
    activation: str | None


def group_of(module: StoredModule) -> Group:
    """What the config says of `module`: a group that targets its name, else one that targets its
    class. Raises ModelError where none does, or where the group cannot be read."""
    source = module.source
    _check_plain(module)
    groups = source.values.get("config_groups")
    if not isinstance(groups, Mapping):
        raise fault(source.file, source.path("config_groups"), "an object", groups)
    by_class: tuple[str, Mapping[str, Any]] | None = None
    for name, group in groups.items():
        key = f"config_groups.{ascii(name)[1:-1]}"
        if not isinstance(group, Mapping):
            raise fault(source.file, source.path(key), "an object", group)
        targets = _targets(group, source, key)
        named = [target for target in targets if target not in CLASSES]
        listed = exact_names(named, source.file, source.path(f"{key}.targets"))
        if listed.matches((module.name,)):
            return _group(group, source, key)
        if by_class is None and len(named) < len(targets):
            by_class = key, group
    if by_class is None:
        raise module.fault(
            f"one of {source.path('config_groups')} must target a module with scales",
            "none that does",
            "the config is not that of the file",
        )
    return _group(by_class[1], source, by_class[0])


def _check_plain(module: StoredModule) -> None:
    source = module.source
    for where in (source.values, source.values.get("sparsity_config")):
        stored = where.get("format") if isinstance(where, Mapping) else None
        if stored in _SPARSE:
            advice = "sparse weights have no kernels here; decompress the model"
            raise fault(source.file, source.path("format"), "dense", stored, advice)
    transforms = source.values.get("transform_config") or {}
    groups = transforms.get("config_groups") if isinstance(transforms, Mapping) else None
    for group in (groups or {}).values() if isinstance(groups, Mapping) else ():
        for entry in group.get("apply") or [] if isinstance(group, Mapping) else []:
            if isinstance(entry, Mapping) and _turns(entry, module):
                raise module.fault(
                    "x and outputs must be used as they are",
                    f"a transform of its {entry.get('location')} at run time",
                    "use a checkpoint without transform_config",
                )


def _turns(entry: Mapping[str, Any], module: StoredModule) -> bool:
    if entry.get("location") not in _ONLINE:
        return False  # of the weight: done when the file was written
    targets = [target for target in entry.get("targets") or [] if isinstance(target, str)]
    source = module.source
    listed = exact_names(targets, source.file, source.path("transform_config"))
    return listed.matches((module.name,)) or not set(targets).isdisjoint(CLASSES)


def _targets(group: Mapping[str, Any], source: Source, key: str) -> list[str]:
    targets = group.get("targets")
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise fault(source.file, source.path(f"{key}.targets"), "a list of names", targets)
    return targets


def _group(group: Mapping[str, Any], source: Source, key: str) -> Group:
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        raise fault(source.file, source.path(f"{key}.weights"), "an object", weights)
    kind, bits = _kind(weights, source, f"{key}.weights")
    scope = _scope(weights, source, f"{key}.weights")
    return Group(
        kind=kind,
        bits=bits,
        symmetric=weights.get("symmetric") is not False,
        scope=scope,
        float_format=_float_format(kind, bits, weights, scope, source, f"{key}.weights"),
        activation=_activation(group.get("input_activations"), source, key),
    )


def _kind(operand: Mapping[str, Any], source: Source, key: str) -> tuple[str, int]:
    kind, bits = str(operand.get("type") or "int").lower(), operand.get("num_bits", 8)
    if kind not in ("int", "float"):
        raise fault(source.file, source.path(f"{key}.type"), "int or float", kind)
    if type(bits) is not int or not 1 <= bits <= 8:
        raise fault(source.file, source.path(f"{key}.num_bits"), "from 1 to 8", bits)
    return kind, bits


def _scope(operand: Mapping[str, Any], source: Source, key: str) -> Scope:
    size, block = operand.get("group_size"), operand.get("block_structure")
    strategy = operand.get("strategy") or _implied(size)
    if strategy == "tensor":
        return TENSOR
    if strategy in ("channel", "token"):
        return CHANNEL
    if strategy in ("group", "tensor_group"):
        if size is None:
            raise missing(source.file, source.path(f"{key}.group_size"), "at least 1")
        if type(size) is not int or not 1 <= size <= 2**24:
            raise fault(source.file, source.path(f"{key}.group_size"), "at least 1", size)
        return Scope(1, size)
    if strategy == "block":
        sides = _sides(block)
        if sides is None:
            path = source.path(f"{key}.block_structure")
            raise fault(source.file, path, "two positive integers", block)
        return Scope(*sides)
    expected = "tensor, channel, group, tensor_group or block"
    raise fault(source.file, source.path(f"{key}.strategy"), expected, strategy)


def _sides(block: Any) -> tuple[int, int] | None:
    """[rows, columns], which old files write as "rowsxcolumns"."""
    if isinstance(block, str):
        block = [int(part) if part.isdecimal() else 0 for part in block.split("x")]
    sound = isinstance(block, list) and len(block) == 2 and all(type(side) is int for side in block)
    return (block[0], block[1]) if sound and min(block) >= 1 and max(block) <= 2**24 else None


def _implied(size: Any) -> str:
    if size is None:
        return "tensor"
    return "channel" if size == -1 else "group"


def _float_format(
    kind: str, bits: int, weights: Mapping[str, Any], scope: Scope, source: Source, key: str
) -> str:
    """mx and nvfp4 by name; "" for integers and for fp8 with float scales."""
    if kind == "int":
        return ""
    if weights.get("symmetric") is False:
        raise fault(source.file, source.path(f"{key}.symmetric"), "true for floats", False)
    if bits == 8 and (scope.columns != 32 or "uint8" not in str(weights.get("scale_dtype"))):
        return ""
    if scope.columns == 32 and scope.rows == 1 and bits in _MX:
        return _MX[bits]
    if (bits, scope) == (4, Scope(1, 16)):
        return "nvfp4"
    expected = "16 or 32 for floats of 4 bits, 32 for 6"
    raise fault(source.file, source.path(f"{key}.group_size"), expected, weights.get("group_size"))


def _activation(operand: Any, source: Source, key: str) -> str | None:
    """As a format's second half; None where x stays as it is, and where no name says how it is
    quantized: the weight is the same."""
    if not isinstance(operand, Mapping) or operand.get("num_bits") == 16:
        return None
    key = f"{key}.input_activations"
    kind, bits = _kind(operand, source, key)
    scope, static = _scope(operand, source, key), operand.get("dynamic", False) is False
    if scope == TENSOR and operand.get("strategy") is None and not static:
        scope = CHANNEL
    whole, symmetric = scope == TENSOR, operand.get("symmetric") is not False
    if whole is not static and not (kind == "float" and bits < 8):
        return None
    if kind == "int":
        return f"int{bits}{'t' if whole else scope.of_integers()}" if symmetric else None
    found = _float_format(kind, bits, operand, scope, source, key)
    return found or f"fp8e4m3{'t' if whole else scope.of_integers()}"
