"""Find a model's quantization (config.json or a side file), tell which tool wrote it, and hand it
to that tool's reader.
"""

from __future__ import annotations

from collections.abc import Callable

from humming.errors import ModelError
from tuner.workload.config_file import ConfigFile, side_file
from tuner.workload.quantization.compressed_tensors import compressed_tensors
from tuner.workload.quantization.methods import awq, fp8, gptq, modelopt
from tuner.workload.quantization.scheme import Quantization, Source
from tuner.workload.values import fault, shown

METHODS: dict[str, Callable[[Source], Quantization | None]] = {
    "awq": awq,
    "compressed-tensors": compressed_tensors,
    "fp8": fp8,
    "gptq": gptq,
    "modelopt": modelopt,
}
KEYS = ("quantization_config", "compression_config")
"""Where config.json holds a quantization; the second is what old tools wrote."""

_TELLING_KEYS = (
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
    config: ConfigFile, override: str | None
) -> tuple[Quantization | None, tuple[str, ...]]:
    """The checkpoint's quantization (None: unquantized) and warnings. A method that is not known is
    a ModelError, or, where the user named a format (`override`), a warning: the layers are then
    planned as if unquantized.
    """
    source = _found(config)
    if source is None:
        return None, ()
    method = _method(source)
    if method in METHODS:
        return METHODS[method](source), ()
    key = source.path("quant_method")
    known = ", ".join(METHODS)
    if override is None:
        advice = "name a format with --format to plan the layers as if unquantized"
        raise fault(source.file, key, f"one of {known}", method, advice)
    return None, (
        f"{source.file}: `{key}` is {shown(method)}, which cannot be read: layers are planned as "
        f"if unquantized, in {override}",
    )


def _found(config: ConfigFile) -> Source | None:
    for key in KEYS:
        value = config.values.get(key)
        if value is None or value == {}:
            continue
        if not isinstance(value, dict):
            raise fault(config.name, key, "an object", value)
        return Source(config.name, key, value)
    side = side_file(config)
    if side is None:
        return None
    name, values = side
    if not name.endswith("hf_quant_config.json"):
        return Source(name, "", values) if values else None
    inner = values.get("quantization")
    if not isinstance(inner, dict):
        raise fault(name, "quantization", "an object", inner)
    return Source(name, "quantization", {"quant_method": "modelopt", **inner})


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
