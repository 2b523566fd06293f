"""Why a checkpoint holds a layer as floats: what its config lists, and what tools leave out. Which
layers there are is found elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from humming.checkpoints import Checkpoint
from humming.checkpoints.config.names import NameList, exact_names, path_names, substring_names
from humming.checkpoints.config.source import Source, method_of
from humming.errors import ModelError

_KEYS = (
    "ignore",
    "modules_to_not_convert",
    "ignored_layers",
    "exclude_modules",
    "exclude",
    "skip_modules",
    "llm_int8_skip_modules",
)
"""Where configs list what they leave out; a test of ours compares them with the readers'."""

_DIALECTS: Mapping[str, Callable[[Iterable[str], str, str], NameList]] = {
    "compressed-tensors": exact_names,
    "awq": substring_names,
}
_EMBEDDINGS = ("embed", "wte", "wpe", "lookup")
_HEADS = ("lm_head", "output", "head")
_ROUTERS = ("gate", "router", "shared_expert_gate")


def reason(checkpoint: Checkpoint, name: str) -> str:
    """Why the module called `name` is not quantized, in a few words."""
    source = checkpoint.source
    if source is None:
        return "the checkpoint has no quantization config"
    for key in _KEYS:
        listed = _listed(source, key)
        if listed is not None and listed.matches((name,)):
            return f"{source.path(key)} lists it"
    if _left_by_rule(source, name):
        return f"{source.path('dynamic')} leaves it out"
    last = name.rpartition(".")[2]
    if any(part in last for part in _EMBEDDINGS):
        return "an embedding, looked up and not multiplied"
    if last in _HEADS:
        return "the head, which tools leave as it is unless told"
    if last in _ROUTERS:
        return "a router, which tools leave as it is"
    return "its file holds floats; the config does not say why"


@lru_cache(maxsize=64)
def _listed(source: Source, key: str) -> NameList | None:
    stored: Any = source.values.get(key)
    if not isinstance(stored, list):
        return None
    names = [entry for entry in stored if isinstance(entry, str)]
    dialect = _DIALECTS.get(method_of(source) or "", path_names)
    try:
        return dialect(names, source.file, source.path(key))
    except ModelError:  # a pattern that cannot be read tells nothing
        return None


def _left_by_rule(source: Source, name: str) -> bool:
    """GPTQ's `dynamic`: regular expressions, of which those with "-:" leave out."""
    rules = source.values.get("dynamic")
    entries: Iterable[Any] = rules if isinstance(rules, Mapping) else ()
    patterns = [f"re:{entry[2:]}" for entry in entries if str(entry).startswith("-:")]
    try:
        listed = exact_names(patterns, source.file, source.path("dynamic"))
        return listed.matches((name,))
    except ModelError:
        return False
