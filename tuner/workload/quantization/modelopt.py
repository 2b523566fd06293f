"""ModelOpt: quant_algo and quantized_layers -> Quantization. Its config stands in config.json or in
hf_quant_config.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.names import NameList, path_names
from humming.checkpoints.config.source import Source
from tuner.workload.quantization.compressed_tensors import compressed_tensors
from tuner.workload.quantization.excluding import Excluding, excluded
from tuner.workload.quantization.scheme import (
    ADVICE,
    Quantization,
    Scheme,
    checked,
    rules_by_scheme,
)
from tuner.workload.values import Values, validated

FORMATS = {
    "FP8": "fp8e4m3t-fp8e4m3t",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8e4m3-fp8e4m3",
    "FP8_PB_WO": "fp8e4m3b128",
    "NVFP4": "nvfp4-nvfp4",
    "NVFP4_AWQ": "nvfp4-nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4-fp8e4m3t",
    "MXFP4": "mxfp4-mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4-fp8e4m3t",
    "MXFP8": "mxfp8e4m3-mxfp8e4m3",
    "W8A8_SQ_PER_CHANNEL": "int8-int8",
    "INT8_SQ": "int8-int8",
    "W8A16": "int8",
}
GROUPED = {
    "W4A16": "int4g{}",
    "W4A16_AWQ": "int4g{}",
    "INT4_AWQ": "int4g{}",
    "W4A8_AWQ": "int4g{}-fp8e4m3t",
}
"""Formats whose group size stands beside the algorithm."""

GROUP_SIZE = 128
MIXED = "MIXED_PRECISION"


class _ModelOpt(Excluding):
    quant_algo: str | None = None
    group_size: int | None = None


class _Layer(Values):
    quant_algo: str | None = None
    group_size: int | None = None


class _Layers(Values):
    quantized_layers: dict[str, _Layer] | None = None


def modelopt(source: Source) -> Quantization | None:
    """`quant_algo` by a table; None where only the KV cache is quantized. In a mixed config
    `quantized_layers` says what is stored how, and all else is not quantized.
    """
    values = validated(_ModelOpt, source.values, source.file, source.key)
    algorithm = values.quant_algo or _implied(source)
    left_out = (excluded(values, source), None)
    if algorithm is None:
        if "config_groups" not in source.values:
            return None
        found = compressed_tensors(source)
        return Quantization((left_out, *found.rules), found.default)
    rules = (left_out, *quantized_layers(source))
    if algorithm.upper() == MIXED:
        return Quantization(rules, None)
    return Quantization(rules, _scheme(algorithm, values.group_size, source, "quant_algo"))


def quantized_layers(source: Source) -> Iterator[tuple[NameList, Scheme | None]]:
    """Rules for the modules that `quantized_layers` names one by one."""
    values = validated(_Layers, source.values, source.file, source.key)
    key = "quantized_layers"
    entries = (
        (name, _scheme(layer.quant_algo, layer.group_size, source, f"{key}.{ascii(name)[1:-1]}"))
        for name, layer in (values.quantized_layers or {}).items()
    )
    yield from rules_by_scheme(
        entries, lambda names: path_names(names, source.file, source.path(key))
    )


def _scheme(
    algorithm: str | None, group_size: int | None, source: Source, key: str
) -> Scheme | None:
    if algorithm is None or algorithm.upper() == "NONE":
        return None
    name: Any = FORMATS.get(algorithm.upper())
    if name is None:
        grouped = GROUPED.get(algorithm.upper())
        name = grouped and grouped.format(GROUP_SIZE if group_size is None else group_size)
    if name is None:
        known = ", ".join((*FORMATS, *GROUPED))
        raise fault(source.file, source.path(key), f"one of {known}", algorithm, ADVICE)
    return Scheme(checked(name, source, key))


def _implied(source: Source) -> str | None:
    """Some configs say the algorithm only in the method's name: modelopt_fp4."""
    method = str(source.values.get("quant_method", "")).lower().replace("-", "_")
    return {"modelopt_fp4": "NVFP4", "modelopt_fp8": "FP8", "modelopt_mxfp8": "MXFP8"}.get(method)
