"""Where a model's quantization stands (config.json or a side file), and which tool wrote it. What
its values mean is known to each tool's reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from humming.checkpoints.config.config_file import ConfigFile, side_file
from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.text_config import TextConfig

KEYS = ("quantization_config", "compression_config")
"""Where config.json holds a quantization; the second is what old tools wrote."""

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

_TELLING_KEYS = (
    ("autoround_version", "auto-round"),
    ("global_quant_config", "quark"),
    ("config_groups", "compressed-tensors"),
    ("quant_algo", "modelopt"),
    ("weight_block_size", "fp8"),
    ("activation_scheme", "fp8"),
    ("zero_point", "awq"),
    ("w_bit", "awq"),
    ("load_in_4bit", "bitsandbytes"),
    ("load_in_8bit", "bitsandbytes"),
    ("desc_act", "gptq"),
    ("bits", "gptq"),
)


@dataclass(frozen=True, eq=False)
class Source:
    """Where a quantization was found: the object `values` under `key` ("" for a whole file) of the
    file called `file`. `model` are the language model's own values. Told apart by identity, so that
    what is made of it can be kept.
    """

    file: str
    key: str
    values: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)

    def path(self, key: str) -> str:
        """`key` as messages name it."""
        return f"{self.key}.{key}" if self.key else key


def found_source(config: ConfigFile, text: TextConfig) -> Source | None:
    """The quantization of the model with `config`; None where nothing says that it has one."""
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
    return None if side is None else _in_side_file(*side, text)


def _in_side_file(name: str, values: dict[str, Any], text: TextConfig) -> Source | None:
    if not name.endswith("hf_quant_config.json"):
        return Source(name, "", values, text.values) if values else None
    inner = values if "quant_algo" in values else values.get("quantization")
    if not isinstance(inner, dict):
        raise fault(name, "quantization", "an object", inner)
    key = "" if inner is values else "quantization"
    return Source(name, key, {"quant_method": "modelopt", **inner}, text.values)


def method_of(source: Source) -> str | None:
    """The tool that wrote `source`, in this project's spelling where it has one; None where neither
    its name nor a telling key stands there.
    """
    value = source.values.get("quant_method")
    if value is not None:
        if not isinstance(value, str):
            raise fault(source.file, source.path("quant_method"), "a string", value)
        method = value.lower().replace("_", "-")
        return SPELLINGS.get(method, method)
    return next((method for key, method in _TELLING_KEYS if key in source.values), None)
