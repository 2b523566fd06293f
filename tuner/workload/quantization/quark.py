"""Quark: global and per-layer specifications -> Quantization."""

from __future__ import annotations

from typing import Any

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.names import path_names
from humming.checkpoints.config.source import Source
from tuner.workload.quantization.scheme import (
    ADVICE,
    Quantization,
    Scheme,
    checked,
    integer_format,
    rules_by_scheme,
)
from tuner.workload.values import Values, validated


class _Spec(Values):
    dtype: str
    qscheme: str | None = None
    group_size: int | None = None
    block_size: list[int] | None = None
    symmetric: bool | None = None
    is_dynamic: bool | None = None
    scale_format: str | None = None


class _Layer(Values):
    weight: dict[str, Any] | list[Any] | None = None
    input_tensors: dict[str, Any] | list[Any] | None = None


class _Quark(Values):
    global_quant_config: _Layer | None = None
    layer_quant_config: dict[str, _Layer | None] | None = None
    exclude: list[str] | None = None


FLOATS = {
    "fp8_e4m3": "fp8e4m3",
    "fp8e4m3": "fp8e4m3",
    "fp8_e5m2": "fp8e5m2",
    "fp6_e2m3": "fp6e2m3",
    "fp6_e3m2": "fp6e3m2",
}


def quark(source: Source) -> Quantization:
    """`exclude` goes before `layer_quant_config` (names and globs), that before the global one."""
    values = validated(_Quark, source.values, source.file, source.key)
    left_out = path_names(values.exclude or [], source.file, source.path("exclude"))
    entries = (
        (name, _scheme(layer, source, f"layer_quant_config.{ascii(name)[1:-1]}"))
        for name, layer in (values.layer_quant_config or {}).items()
    )
    key = source.path("layer_quant_config")
    rules = rules_by_scheme(entries, lambda names: path_names(names, source.file, key))
    default = _scheme(values.global_quant_config, source, "global_quant_config")
    return Quantization(((left_out, None), *rules), default)


def _scheme(layer: _Layer | None, source: Source, key: str) -> Scheme | None:
    if layer is None or layer.weight is None:
        return None
    name = _operand(_spec(layer.weight, source, f"{key}.weight"), source, f"{key}.weight")
    if layer.input_tensors is not None:
        spec = _spec(layer.input_tensors, source, f"{key}.input_tensors")
        name += f"-{_activation(spec, source, f'{key}.input_tensors')}"
    return Scheme(checked(name, source, key))


def _spec(values: dict[str, Any] | list[Any], source: Source, key: str) -> _Spec:
    stages = values if isinstance(values, list) else [values]
    if len(stages) != 1:
        expected = "a single stage, as no format describes several"
        raise fault(source.file, source.path(key), expected, stages, ADVICE)
    return validated(_Spec, stages[0], source.file, source.path(key))


def _operand(spec: _Spec, source: Source, key: str) -> str:
    dtype, scope = spec.dtype.lower(), _scope(spec, source, key)
    shared = spec.group_size if scope.startswith("g") else None
    if dtype in ("fp4", "mxfp4") and shared in (16, 32):
        return "mxfp4" if shared == 32 else "nvfp4"
    if dtype in FLOATS:
        block = shared == 32 and spec.scale_format == "e8m0"
        return f"mx{FLOATS[dtype]}" if block else f"{FLOATS[dtype]}{scope}"
    bits = dtype.removeprefix("u").removeprefix("int")
    if (
        dtype.startswith(("int", "uint"))
        and bits.isdecimal()
        and len(bits) == 1
        and scope[:1] in ("", "g")
    ):
        symmetric = dtype.startswith("int") and spec.symmetric is not False
        return integer_format(int(bits), shared, symmetric)
    expected = "a data type and scheme that a format describes"
    raise fault(source.file, source.path(key), expected, spec.dtype, ADVICE)


def _activation(spec: _Spec, source: Source, key: str) -> str:
    """Static per tensor, or dynamic per token or group; a dynamic scale of a whole tensor has no
    name.
    """
    whole = (spec.qscheme or "per_tensor") == "per_tensor"
    if whole and spec.is_dynamic is not False:
        expected = "per_token or per_group where dynamic"
        raise fault(source.file, source.path(f"{key}.qscheme"), expected, spec.qscheme, ADVICE)
    if whole and spec.dtype.lower() == "int8":
        return "int8t"
    return _operand(spec, source, key)


def _scope(spec: _Spec, source: Source, key: str) -> str:
    scheme = spec.qscheme or "per_tensor"
    block = spec.block_size or []
    if scheme == "per_block" or (scheme == "per_group" and block):
        if len(block) == 2 and block[0] == block[1] and block[0] > 0:
            return f"b{block[0]}"
        path = source.path(f"{key}.block_size")
        raise fault(source.file, path, "two equal positive integers", spec.block_size, ADVICE)
    if scheme == "per_group":
        return f"g{spec.group_size}"
    found = {"per_tensor": "t", "per_channel": "", "per_token": ""}.get(scheme)
    if found is None:
        expected = "per_tensor, per_channel, per_token, per_group or per_block"
        raise fault(source.file, source.path(f"{key}.qscheme"), expected, scheme, ADVICE)
    return found
