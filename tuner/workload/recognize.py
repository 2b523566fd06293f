"""Which entry of the table of architectures a config belongs to. The entries are in
architectures/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from humming.checkpoints.config.faults import fault, missing, shown
from humming.checkpoints.config.text_config import TextConfig
from humming.errors import ModelError
from humming.spec.naming import did_you_mean
from tuner.workload.architectures import ARCHITECTURES, Architecture

_TASKS = re.compile(
    r"(?P<stem>\w+?)(?P<lm>LM)?"
    r"(For(CausalLM|ConditionalGeneration|SequenceClassification|TokenClassification"
    r"|QuestionAnswering|RewardModel|ProcessRewardModel)|(LMHead|Text)?Model)"
)
KNOWN = {name: entry for entry in ARCHITECTURES for name in entry.model_types}
_CLASSES = {name.lower(): entry for entry in ARCHITECTURES for name in entry.classes}
_QUANTIZATION_KEYS = ("bits", "quant_method", "quantization", "quant_algo", "config_groups")


def find_architecture(config: TextConfig) -> Architecture:
    """The table's entry for `config`, by `model_type` and `architectures`, of the language model's
    own config first. Raises ModelError naming what is supported.
    """
    inner = _named(config, config.values, config.path)
    if not config.under:
        return _known(config, *inner)
    outer = _named(config, config.outer, str)
    found = _entry(config, *inner)
    if found is not None:
        return found
    return _known(config, *(outer if not any(inner) or _entry(config, *outer) else inner))


def _known(config: TextConfig, model_type: str | None, named: str | None) -> Architecture:
    if not model_type and not named:
        raise _nameless(config)
    found = _entry(config, model_type, named)
    if found is None:
        raise _unknown(config, model_type, named)
    return found


def _entry(config: TextConfig, model_type: str | None, named: str | None) -> Architecture | None:
    """The entry of both names; None where a class is named that the table does not have."""
    by_type, by_class = KNOWN.get(model_type or ""), _by_class(named)
    if by_type and by_class and by_type is not by_class and by_type.blocks != by_class.blocks:
        raise ModelError(
            f"{config.name}: `architectures` and `model_type` must name the same model, but got "
            f"{shown(named)} and {shown(model_type)}; correct the file"
        )
    return (by_type or by_class) if by_class or not named else None


def _by_class(named: str | None) -> Architecture | None:
    match = _TASKS.fullmatch(named or "")
    if match is None:
        return None
    stem = match["stem"].lower()
    return _CLASSES.get(f"{stem}lm" if match["lm"] else stem) or _CLASSES.get(stem)


def _named(
    config: TextConfig, values: Mapping[str, Any], path: Any
) -> tuple[str | None, str | None]:
    model_type, classes = values.get("model_type"), values.get("architectures")
    if model_type is not None and not isinstance(model_type, str):
        raise fault(config.name, path("model_type"), "a string", model_type)
    if classes is None:
        return model_type, None
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise fault(config.name, path("architectures"), "a list of class names", classes)
    return model_type, classes[0] if classes else None


def _nameless(config: TextConfig) -> ModelError:
    if any(key in config.outer for key in _QUANTIZATION_KEYS):
        return ModelError(
            f"{config.name}: a model's config.json must be given, but this file describes only a "
            f"quantization; name the config.json that it belongs to"
        )
    return missing(config.name, config.path("model_type"), "a model's architecture")


def _unknown(config: TextConfig, model_type: str | None, named: str | None) -> ModelError:
    got = " of model_type ".join(shown(name) for name in (named, model_type) if name)
    near = did_you_mean(model_type or named or "", KNOWN).removeprefix("; ")
    advice = f" ({near})" if near else ""
    return ModelError(
        f"{config.name}: the architecture must be one of the {len(KNOWN)} known ones, such as "
        f"llama, qwen3_moe or deepseek_v3, but got {got}{advice}; plan a model of a known one"
    )
