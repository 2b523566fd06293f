"""Which entry of the table of architectures a config belongs to. The entries are in
architectures.py.
"""

from __future__ import annotations

import re

from humming.errors import ModelError
from tuner.workload.architectures import ARCHITECTURES, Architecture
from tuner.workload.config_file import ConfigFile
from tuner.workload.values import fault, missing, shown

_TASKS = r"(LM)?(For(CausalLM|SequenceClassification|TokenClassification|QuestionAnswering)|Model)"
KNOWN = {entry.model_type: entry for entry in ARCHITECTURES}


def find_architecture(config: ConfigFile) -> Architecture:
    """The table's entry for `config`, by `model_type` and `architectures`. Raises ModelError naming
    what is supported.
    """
    model_type, named = _model_type(config), _class(config)
    if not model_type and not named:
        raise missing(config.name, "model_type", f"one of {', '.join(KNOWN)}")
    by_type = KNOWN.get(model_type or "")
    by_class = next((e for e in ARCHITECTURES if named and _is_class(named, e)), None)
    if by_type and by_class and by_type.linears != by_class.linears:
        raise ModelError(
            f"{config.name}: `architectures` and `model_type` must name the same model, but got "
            f"{shown(named)} and {shown(model_type)}; correct the file"
        )
    found = (by_type or by_class) if by_class or not named else None
    if found is None:
        raise _unknown(config, model_type, named)
    return found


def _unknown(config: ConfigFile, model_type: str | None, named: str | None) -> ModelError:
    got = " of model_type ".join(shown(name) for name in (named, model_type) if name)
    return ModelError(
        f"{config.name}: the architecture must be one of {', '.join(KNOWN)}, but got {got}; "
        f"plan a model of one of these"
    )


def _model_type(config: ConfigFile) -> str | None:
    value = config.values.get("model_type")
    if value is not None and not isinstance(value, str):
        raise fault(config.name, "model_type", "a string", value)
    return value


def _class(config: ConfigFile) -> str | None:
    value = config.values.get("architectures")
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise fault(config.name, "architectures", "a list of class names", value)
    return value[0] if value else None


def _is_class(name: str, entry: Architecture) -> bool:
    return re.fullmatch(re.escape(entry.stem) + _TASKS, name, re.IGNORECASE) is not None
