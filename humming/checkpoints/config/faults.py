"""The one sentence for a config's bad or missing value. Checking values against a type is
elsewhere.
"""

from __future__ import annotations

import json

from humming.errors import ModelError

_SHOWN = 60


def fault(
    file: str, key: str, expected: str, value: object, advice: str = "correct the file"
) -> ModelError:
    """The one sentence for a bad value: `file: key must be expected, but got value; advice`."""
    return ModelError(f"{file}: `{key}` must be {expected}, but got {shown(value)}; {advice}")


def missing(file: str, key: str, expected: str) -> ModelError:
    """The one sentence for a key that is absent or null."""
    return ModelError(
        f"{file}: `{key}` must be {expected}, but it is missing or null; add it to the file"
    )


def shown(value: object) -> str:
    """`value` on one line of ASCII, short, whatever it is."""
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)} items"
    text = json.dumps(value, default=lambda v: type(v).__name__)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
