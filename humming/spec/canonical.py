"""Canonical JSON and content hashes: the one way in which a value becomes a key. No domain types
here."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys, no spaces and no NaN: equal values give equal text.

    Dataclasses become objects of their fields; tuples become lists. Raises ValueError on NaN or
    infinity, TypeError on anything that JSON does not have.
    """
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> Any:
    """`value` with dataclasses as dicts and tuples as lists, ready for json."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def content_hash(value: Any) -> str:
    """32 hex digits (128 bits of SHA-256) that name `value` by its canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:32]
