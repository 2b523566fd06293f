"""compressed-tensors: config_groups and ignore -> Quantization. Other tools' configs are in
methods.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from humming.checkpoints.config.faults import fault, missing
from humming.checkpoints.config.names import NameList, exact_names
from humming.checkpoints.config.source import Source
from tuner.workload.quantization.scheme import (
    ADVICE,
    Quantization,
    Scheme,
    checked,
    integer_format,
)
from tuner.workload.values import Values, validated

CLASSES = ("Linear", "LinearBase", "FusedMoE")
"""Targets that name a class; every planned layer is of one."""


class _Operand(Values):
    num_bits: Annotated[int, Field(ge=1, le=16)] = 8
    type: Literal["int", "float"] = "int"
    symmetric: bool | None = None
    group_size: Annotated[int, Field(ge=-1, le=2**24)] | None = None
    strategy: str | None = None
    block_structure: list[int] | None = None
    dynamic: Any = False
    actorder: Any = None
    scale_dtype: Any = None


class _Group(Values):
    targets: list[str]
    weights: _Operand | None = None
    input_activations: _Operand | None = None


class _Config(Values):
    config_groups: dict[str, _Group]
    ignore: list[str] | None = None


def compressed_tensors(source: Source) -> Quantization:
    """Targets by name or `re:` go before targets by class ("Linear"); `ignore` goes before both."""
    values = validated(_Config, source.values, source.file, source.key)
    ignored = exact_names(values.ignore or [], source.file, source.path("ignore"))
    rules: list[tuple[NameList, Scheme | None]] = [(ignored, None)]
    default: Scheme | None = None
    for name, group in values.config_groups.items():
        key = f"config_groups.{ascii(name)[1:-1]}"
        scheme = _scheme(group, source, key)
        named = [target for target in group.targets if target not in CLASSES]
        if named:
            listed = exact_names(named, source.file, source.path(f"{key}.targets"))
            rules.append((listed, scheme))
        if len(named) < len(group.targets) and default is None:
            default = scheme
    return Quantization(tuple(rules), default)


def _scheme(group: _Group, source: Source, key: str) -> Scheme | None:
    weights, activations = group.weights, group.input_activations
    if weights is None or weights.num_bits == 16:
        return None
    name = _weight(weights, source, f"{key}.weights")
    if activations is not None and activations.num_bits < 16:
        name += f"-{_activation(activations, source, f'{key}.input_activations')}"
    act_order = weights.actorder is True or weights.actorder in ("group", "dynamic")
    return Scheme(checked(name, source, f"{key}.weights"), act_order)


def _weight(weights: _Operand, source: Source, key: str) -> str:
    strategy = weights.strategy or _implied_strategy(weights)
    if weights.type == "float":
        return _float(weights, strategy, source, key)
    if strategy == "group":
        group_size = _group_size(weights, source, key)
    elif strategy == "channel":
        group_size = None
    else:
        raise fault(
            source.file, source.path(f"{key}.strategy"), "channel or group", strategy, ADVICE
        )
    return integer_format(weights.num_bits, group_size, weights.symmetric is not False)


def _activation(activations: _Operand, source: Source, key: str) -> str:
    strategy = activations.strategy or ("token" if activations.dynamic is True else "tensor")
    static = activations.dynamic is False
    if strategy == "tensor" and not static:
        expected = "token or group where dynamic"
        raise fault(source.file, source.path(f"{key}.strategy"), expected, strategy, ADVICE)
    if activations.type == "float":
        return _float(activations, strategy, source, key)
    scope = {"token": "", "tensor": "t"}.get(strategy)
    if scope is None:
        scope = f"g{_group_size(activations, source, key)}"
    return f"int{activations.num_bits}{scope}"


def _float(operand: _Operand, strategy: str, source: Source, key: str) -> str:
    bits = operand.num_bits
    if bits == 4:
        known = {("tensor_group", 16): "nvfp4", ("group", 16): "nvfp4", ("group", 32): "mxfp4"}
        name = known.get((strategy, operand.group_size or 0))
        if name:
            return name
        expected = "16 (tensor_group) or 32 (group) for 4-bit floats"
        path = source.path(f"{key}.group_size")
        raise fault(source.file, path, expected, operand.group_size, ADVICE)
    if bits != 8:
        raise fault(source.file, source.path(f"{key}.num_bits"), "4 or 8 for floats", bits, ADVICE)
    if strategy == "block":
        return f"fp8e4m3b{_block(operand, source, key)}"
    if strategy == "group" and operand.group_size == 32 and operand.scale_dtype == "torch.uint8":
        return "mxfp8e4m3"
    if strategy == "group":
        return f"fp8e4m3g{_group_size(operand, source, key)}"
    scope = {"tensor": "t", "channel": "", "token": ""}.get(strategy)
    if scope is None:
        expected = "tensor, channel, token, group or block"
        raise fault(source.file, source.path(f"{key}.strategy"), expected, strategy, ADVICE)
    return f"fp8e4m3{scope}"


def _implied_strategy(operand: _Operand) -> str:
    if operand.group_size is None:
        return "tensor"
    return "channel" if operand.group_size == -1 else "group"


def _group_size(operand: _Operand, source: Source, key: str) -> int:
    path = source.path(f"{key}.group_size")
    if operand.group_size is None:
        raise missing(source.file, path, "at least 1 for strategy group")
    if operand.group_size < 1:
        expected = "at least 1 for strategy group"
        raise fault(source.file, path, expected, operand.group_size)
    return operand.group_size


def _block(operand: _Operand, source: Source, key: str) -> int:
    block = operand.block_structure or []
    if len(block) == 2 and block[0] == block[1] and 1 <= block[0] <= 2**24:
        return block[0]
    path = source.path(f"{key}.block_structure")
    raise fault(source.file, path, "two equal positive integers", operand.block_structure, ADVICE)
