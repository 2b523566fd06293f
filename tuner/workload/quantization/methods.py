"""GPTQ, AWQ, fp8 and mxfp4: their quantization configs -> Quantization. Others have files of their
own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from humming.checkpoints.config.faults import fault, missing
from humming.checkpoints.config.names import NameList, path_names, regex_names, substring_names
from humming.checkpoints.config.source import Source
from tuner.workload.quantization.excluding import Excluding, excluded
from tuner.workload.quantization.modelopt import quantized_layers
from tuner.workload.quantization.scheme import (
    ADVICE,
    Quantization,
    Scheme,
    checked,
    integer_format,
)
from tuner.workload.values import Values, validated

Bits = Annotated[int, Field(ge=1, le=8)]
GroupSize = Annotated[int, Field(ge=-1, le=2**24)]

FP8_FORMATS = {
    "e4m3": "fp8e4m3",
    "float8_e4m3fn": "fp8e4m3",
    "e5m2": "fp8e5m2",
    "float8_e5m2": "fp8e5m2",
}


class _Gptq(Excluding):
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


class _Awq(Excluding):
    bits: Bits | None = None
    w_bit: Bits | None = None
    group_size: GroupSize | None = None
    q_group_size: GroupSize | None = None
    zero_point: bool | None = None


class _Fp8(Excluding):
    activation_scheme: Literal["dynamic", "static"] | None = None
    fmt: str | None = None
    weight_block_size: list[int] | None = None
    quant_scheme: str | None = None
    quant_algo: str | None = None


def gptq(source: Source) -> Quantization:
    """`bits`, `group_size` (-1: per channel), `sym`, `desc_act`; `dynamic` regexes, `-:` to leave
    out, else to override.
    """
    values = validated(_Gptq, source.values, source.file, source.key)
    rules = [(excluded(values, source), None), *_dynamic(values, source)]
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
        listed = regex_names(regex, source.file, source.path("dynamic"))
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
    key = source.path("modules_to_not_convert")
    left_out = substring_names(values.listed(), source.file, key)
    return Quantization(((left_out, None),), scheme)


def fp8(source: Source) -> Quantization:
    """Square blocks with activations in groups of the same size, one scale a channel, or one a
    tensor; `activation_scheme` dynamic or static. Experts may be stored in 4 bits, and others as
    `quantized_layers` says: what such a mixed config ignores is left in fp8.
    """
    values = validated(_Fp8, source.values, source.file, source.key)
    rules: list[tuple[NameList, Scheme | None]] = [*quantized_layers(source)]
    if values.quant_algo is None or values.quant_algo.upper() != "MIXED_PRECISION":
        rules.insert(0, (excluded(values, source), None))
    if source.model.get("expert_dtype") == "fp4":
        experts = path_names(["experts"], source.file, source.path("expert_dtype"))
        rules.append((experts, Scheme("mxfp4-fp8e4m3g128")))
    scheme = Scheme(checked(_fp8_name(values, source), source, "weight_block_size"))
    return Quantization(tuple(rules), scheme)


def _fp8_name(values: _Fp8, source: Source) -> str:
    stored = FP8_FORMATS.get(values.fmt or "e4m3")
    if stored is None:
        raise fault(source.file, source.path("fmt"), f"one of {', '.join(FP8_FORMATS)}", values.fmt)
    block = values.weight_block_size
    if block is None:
        scope = "" if values.quant_scheme == "channel" else "t"
        return f"{stored}{scope}-{stored}{'t' if values.activation_scheme == 'static' else ''}"
    if len(block) != 2 or block[0] != block[1] or not 1 <= block[0] <= 2**24:
        key = source.path("weight_block_size")
        raise fault(source.file, key, "two equal positive integers", block, ADVICE)
    return f"{stored}b{block[0]}-{stored}g{block[0]}"


def fbgemm_fp8(source: Source) -> Quantization:
    """fp8 with one scale a channel, activations per token."""
    values = validated(Excluding, source.values, source.file, source.key)
    return Quantization(((excluded(values, source), None),), Scheme("fp8e4m3-fp8e4m3"))


def mxfp4(source: Source) -> Quantization:
    """The experts of gpt-oss, and nothing else."""
    values = validated(Excluding, source.values, source.file, source.key)
    experts = path_names(["experts"], source.file, source.path("quant_method"))
    return Quantization(((excluded(values, source), None), (experts, Scheme("mxfp4"))), None)
