"""The part of a config that describes the language model, however deep a multimodal config nests
it. What its keys mean is known elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from humming.checkpoints.config.config_file import ConfigFile

NESTS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "language_model",
    "text_model",
    "llm",
)
"""Keys under which multimodal configs keep the language model's."""

SIGNS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "hidden_size",
    "n_embd",
    "d_model",
)
"""A nested object is the language model's where it has one of these, or a nest of its own."""

DEPTH = 3


@dataclass(frozen=True)
class TextConfig:
    """`values` of the language model under `under` ("" where nothing is nested) in the file `name`;
    `outer` is the whole file.
    """

    name: str
    values: Mapping[str, Any]
    outer: Mapping[str, Any]
    under: str = ""

    def get(self, key: str) -> Any:
        """The value at `key`, whose dots lead into objects; None where there is none."""
        value: Any = self.values
        for step in key.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value

    def path(self, key: str) -> str:
        """`key` as messages name it."""
        return f"{self.under}.{key}" if self.under else key

    def with_values(self, values: Mapping[str, Any]) -> TextConfig:
        """The same place with other values."""
        return replace(self, values=values)


def text_config(config: ConfigFile) -> TextConfig:
    """The language model's part of `config`: the innermost nest that looks like one, else the whole
    file.
    """
    values: Mapping[str, Any] = config.values
    under: list[str] = []
    while len(under) < DEPTH:
        bare = all(values.get(sign) is None for sign in SIGNS)
        left = DEPTH - len(under)
        key = next((key for key in NESTS if _is_model(values.get(key), left, bare)), None)
        if key is None:
            break
        under.append(key)
        values = values[key]
    return TextConfig(config.name, values, config.values, ".".join(under))


def _is_model(value: Any, depth: int, bare: bool) -> bool:
    """Whether `value` is a language model's config; in a `bare` object its model_type alone says
    so.
    """
    if not isinstance(value, Mapping) or depth == 0:
        return False
    if any(value.get(key) is not None for key in SIGNS):
        return True
    if any(_is_model(value.get(key), depth - 1, bare) for key in NESTS):
        return True
    return bare and value.get("model_type") is not None
