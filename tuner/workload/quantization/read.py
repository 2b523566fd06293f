"""Find a model's quantization (config.json or a side file), tell which tool wrote it, and hand it
to that tool's reader.
"""

from __future__ import annotations

from collections.abc import Callable

from humming.errors import ModelError
from tuner.workload.config_file import ConfigFile, side_file
from tuner.workload.quantization.autoround import auto_round
from tuner.workload.quantization.compressed_tensors import compressed_tensors
from tuner.workload.quantization.methods import awq, fbgemm_fp8, fp8, gptq, mxfp4
from tuner.workload.quantization.modelopt import modelopt
from tuner.workload.quantization.quark import quark
from tuner.workload.quantization.scheme import Quantization, Source
from tuner.workload.quantization.weight_only import hqq, torchao
from tuner.workload.text_config import TextConfig
from tuner.workload.values import fault

METHODS: dict[str, Callable[[Source], Quantization | None]] = {
    "auto-round": auto_round,
    "awq": awq,
    "compressed-tensors": compressed_tensors,
    "fbgemm-fp8": fbgemm_fp8,
    "fp8": fp8,
    "gptq": gptq,
    "hqq": hqq,
    "modelopt": modelopt,
    "mxfp4": mxfp4,
    "quark": quark,
    "torchao": torchao,
}
SPELLINGS = {
    "intel/auto-round": "auto-round",
    "autoround": "auto-round",
    "inc": "auto-round",
    "awq-marlin": "awq",
    "gptq-marlin": "gptq",
    "marlin": "gptq",
    "gptqmodel": "gptq",
    "sparseml": "compressed-tensors",
    "modelopt-fp4": "modelopt",
    "modelopt-fp8": "modelopt",
    "modelopt-mixed": "modelopt",
    "modelopt-mxfp8": "modelopt",
    "gpt-oss-mxfp4": "mxfp4",
}
"""Other names under which tools and engines write the same configs."""

KEYS = ("quantization_config", "compression_config")
"""Where config.json holds a quantization; the second is what old tools wrote."""

_TELLING_KEYS = (
    ("autoround_version", "auto-round"),
    ("global_quant_config", "quark"),
    ("config_groups", "compressed-tensors"),
    ("quant_algo", "modelopt"),
    ("weight_block_size", "fp8"),
    ("activation_scheme", "fp8"),
    ("zero_point", "awq"),
    ("w_bit", "awq"),
    ("desc_act", "gptq"),
    ("bits", "gptq"),
)


def read_quantization(
    config: ConfigFile, text: TextConfig, override: str | None
) -> tuple[Quantization | None, tuple[str, ...]]:
    """The checkpoint's quantization (None: unquantized) and warnings. One that cannot be read, or
    that
    no format describes, is a ModelError, or, where the user named a format (`override`), a warning:
    the layers are then planned as if unquantized.
    """
    source = _found(config, text)
    if source is None:
        return None, ()
    try:
        return _reader(source)(source), _notes(source)
    except ModelError as error:
        if override is None:
            raise
        sentence = str(error).rpartition("; ")[0] or str(error)
        return None, (f"{sentence}: layers are planned as if unquantized, in {override}",)


def _reader(source: Source) -> Callable[[Source], Quantization | None]:
    method = _method(source)
    reader = METHODS.get(SPELLINGS.get(method, method))
    if reader is None:
        key, known = source.path("quant_method"), ", ".join(METHODS)
        advice = "name a format with --format to plan the layers as if unquantized"
        raise fault(source.file, key, f"one of {known}", method, advice)
    return reader


def _notes(source: Source) -> tuple[str, ...]:
    if source.values.get("lm_head") is not True and source.values.get("quant_lm_head") is not True:
        return ()
    return (f"{source.file}: lm_head is quantized too, but is not planned",)


def _found(config: ConfigFile, text: TextConfig) -> Source | None:
    for values, path in ((config.values, str), (text.values, text.path)):
        for key in KEYS:
            value = values.get(key)
            if value is None or value == {}:
                continue
            if not isinstance(value, dict):
                raise fault(config.name, path(key), "an object", value)
            inner = value.get("quantization_config")
            if isinstance(inner, dict):
                return Source(config.name, f"{path(key)}.quantization_config", inner, text.values)
            return Source(config.name, path(key), value, text.values)
    side = side_file(config)
    if side is None:
        return None
    name, values = side
    if not name.endswith("hf_quant_config.json"):
        return Source(name, "", values, text.values) if values else None
    inner = values if "quant_algo" in values else values.get("quantization")
    if not isinstance(inner, dict):
        raise fault(name, "quantization", "an object", inner)
    key = "" if inner is values else "quantization"
    return Source(name, key, {"quant_method": "modelopt", **inner}, text.values)


def _method(source: Source) -> str:
    value = source.values.get("quant_method")
    if value is not None:
        if not isinstance(value, str):
            raise fault(source.file, source.path("quant_method"), "a string", value)
        return value.lower().replace("_", "-")
    for key, method in _TELLING_KEYS:
        if key in source.values:
            return method
    raise ModelError(
        f"{source.file}: `{source.path('quant_method')}` must be one of {', '.join(METHODS)}, "
        f"but it is missing; add it to the file"
    )
