"""GPTQ, AWQ, fp8 and ModelOpt: their quantization configs -> Quantization. compressed-tensors has a
file of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tuner.workload.quantization.names import NameList, compiled, path_names
from tuner.workload.quantization.scheme import (
    ADVICE,
    Quantization,
    Scheme,
    Source,
    checked,
    integer_format,
)
from tuner.workload.values import Values, fault, missing, validated

Bits = Annotated[int, Field(ge=1, le=8)]
GroupSize = Annotated[int, Field(ge=-1, le=2**24)]

MODELOPT_FORMATS = {
    "FP8": "fp8e4m3t-fp8e4m3t",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8e4m3-fp8e4m3",
    "NVFP4": "nvfp4-nvfp4",
}
FP8_FORMATS = {
    "e4m3": "fp8e4m3",
    "float8_e4m3fn": "fp8e4m3",
    "e5m2": "fp8e5m2",
    "float8_e5m2": "fp8e5m2",
}


class _Excluding(Values):
    modules_to_not_convert: list[str] | None = None
    ignored_layers: list[str] | None = None
    ignore: list[str] | None = None
    exclude_modules: list[str] | None = None


class _Gptq(_Excluding):
    bits: Bits
    group_size: GroupSize
    sym: bool | None = None
    desc_act: bool | None = None
    dynamic: dict[str, dict[str, Any]] | None = None
    modules_in_block_to_quantize: list[Any] | None = None


class _Override(Values):
    bits: Bits
    group_size: GroupSize
    sym: bool | None = None
    desc_act: bool | None = None


class _Awq(_Excluding):
    bits: Bits | None = None
    w_bit: Bits | None = None
    group_size: GroupSize | None = None
    q_group_size: GroupSize | None = None
    zero_point: bool | None = None


class _Fp8(_Excluding):
    activation_scheme: Literal["dynamic", "static"] | None = None
    fmt: str | None = None
    weight_block_size: list[int] | None = None


class _ModelOpt(_Excluding):
    quant_algo: str | None = None


def gptq(source: Source) -> Quantization:
    """`bits`, `group_size` (-1: per channel), `sym`, `desc_act`; `dynamic` regexes, `-:` to leave
    out, else to override.
    """
    values = validated(_Gptq, source.values, source.file, source.key)
    rules = [(_excluded(values, source), None), *_dynamic(values, source)]
    scheme = _gptq_scheme(values, source)
    included = _included(values, source)
    if included is None:
        return Quantization(tuple(rules), scheme)
    return Quantization((*rules, (included, scheme)), None)


def _gptq_scheme(values: _Gptq | _Override, source: Source) -> Scheme:
    if values.group_size == 0:
        raise fault(source.file, source.path("group_size"), "-1 or at least 1", values.group_size)
    name = integer_format(values.bits, values.group_size, values.sym is not False)
    act_order = values.desc_act is True and values.group_size != -1
    return Scheme(checked(name, source, "group_size"), act_order)


def _dynamic(values: _Gptq, source: Source) -> list[tuple[NameList, Scheme | None]]:
    rules: list[tuple[NameList, Scheme | None]] = []
    base = {name: getattr(values, name) for name in _Override.model_fields}
    for entry, override in (values.dynamic or {}).items():
        regex = entry.removeprefix("-:").removeprefix("+:")
        listed = NameList(patterns=(compiled(regex, source.file, source.path("dynamic")),))
        if entry.startswith("-:"):
            rules.append((listed, None))
            continue
        changed = validated(_Override, {**base, **override}, source.file, source.path("dynamic"))
        rules.append((listed, _gptq_scheme(changed, source)))
    return rules


def _included(values: _Gptq, source: Source) -> NameList | None:
    key = source.path("modules_in_block_to_quantize")
    if not values.modules_in_block_to_quantize:
        return None
    names: list[str] = []
    for entry in values.modules_in_block_to_quantize:
        for name in entry if isinstance(entry, list) else [entry]:
            if not isinstance(name, str):
                raise fault(source.file, key, "a list of (lists of) module names", name)
            names.append(name)
    return path_names(names, source.file, key)


def awq(source: Source) -> Quantization:
    """`bits` or `w_bit`, `group_size` or `q_group_size`, `zero_point` (true where absent)."""
    values = validated(_Awq, source.values, source.file, source.key)
    bits = values.bits or values.w_bit
    group_size = values.group_size if values.group_size is not None else values.q_group_size
    if bits is None:
        raise missing(source.file, source.path("bits"), "an integer from 1 to 8")
    if not group_size:
        raise fault(source.file, source.path("group_size"), "-1 or at least 1", group_size)
    name = integer_format(bits, group_size, values.zero_point is False)
    scheme = Scheme(checked(name, source, "group_size"))
    return Quantization(((_excluded(values, source), None),), scheme)


def fp8(source: Source) -> Quantization:
    """Square blocks with activations in groups of the same size, or one scale a tensor;
    `activation_scheme` dynamic or static.
    """
    values = validated(_Fp8, source.values, source.file, source.key)
    stored = FP8_FORMATS.get(values.fmt or "e4m3")
    if stored is None:
        raise fault(source.file, source.path("fmt"), f"one of {', '.join(FP8_FORMATS)}", values.fmt)
    block = values.weight_block_size
    if block is None:
        name = f"{stored}t-{stored}{'t' if values.activation_scheme == 'static' else ''}"
    elif len(block) != 2 or block[0] != block[1] or not 1 <= block[0] <= 2**24:
        key = source.path("weight_block_size")
        raise fault(source.file, key, "two equal positive integers", block, ADVICE)
    else:
        name = f"{stored}b{block[0]}-{stored}g{block[0]}"
    scheme = Scheme(checked(name, source, "weight_block_size"))
    return Quantization(((_excluded(values, source), None),), scheme)


def modelopt(source: Source) -> Quantization | None:
    """`quant_algo` by a table; None where only the KV cache is quantized."""
    values = validated(_ModelOpt, source.values, source.file, source.key)
    if values.quant_algo is None:
        return None
    name = MODELOPT_FORMATS.get(values.quant_algo.upper())
    if name is None:
        key, known = source.path("quant_algo"), ", ".join(MODELOPT_FORMATS)
        raise fault(source.file, key, f"one of {known}", values.quant_algo, ADVICE)
    return Quantization(((_excluded(values, source), None),), Scheme(name))


def _excluded(values: _Excluding, source: Source) -> NameList:
    entries: list[str] = []
    for key in _Excluding.model_fields:
        entries += getattr(values, key) or []
    return path_names(entries, source.file, source.path("modules_to_not_convert"))
