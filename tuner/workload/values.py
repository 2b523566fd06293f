"""The doorway to pydantic for config values: strict validation whose failures are one ModelError
sentence. No model knowledge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from humming.checkpoints.config.faults import fault, missing

_EXPECTED = {
    "int_type": "an integer",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
}


class Values(BaseModel):
    """Base of everything read from a config: no coercion ("4" is no integer, nor is 4.0 or true),
    unknown keys ignored.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=())


V = TypeVar("V", bound=Values)


def validated(
    model: type[V],
    data: object,
    file: str,
    under: str = "",
    keys: Mapping[str, str] | None = None,
) -> V:
    """`data` as a `model`; else ModelError naming `file`, the key (below `under`, renamed by
    `keys`), value and remedy.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
    path = [str(step) for step in first["loc"]]
    if path and keys:
        path[0] = keys.get(path[0], path[0])
    key = ascii(".".join([under, *path] if under else path))[1:-1]
    if first["type"] == "missing":
        raise missing(file, key, "given")
    context = {name: str(value) for name, value in first.get("ctx", {}).items()}
    expected = _EXPECTED.get(first["type"], "a value that its format allows").format(**context)
    raise fault(file, key or "the whole", expected, first["input"])
