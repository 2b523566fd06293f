"""By which names a module goes in checkpoints, in engines and in lists of exclusions. What a list
means is in quantization/names.py.
"""

from __future__ import annotations

from functools import lru_cache

from tuner.workload.architectures import Architecture, Linear, Part

NESTED = ("model.language_model", "language_model.model", "language_model", "model.text_model")
"""What multimodal models put before the language model's own names."""


def prefixes(architecture: Architecture) -> tuple[str, ...]:
    """Where the layers may stand, the checkpoint's own place first."""
    container = architecture.container
    inner = container.removeprefix("model.")
    usual = () if container == "model.layers" else ("model.layers",)
    nested = tuple(f"{outer}.{inner}" for outer in NESTED)
    return tuple(dict.fromkeys((container, *usual, *nested, inner)))


def module_names(
    architecture: Architecture, linear: Linear, part: Part, layer: int | None
) -> tuple[str, ...]:
    """All full names of `part` of `linear` in layer number `layer` (None: outside the layers)."""
    local = _local_names(part.module, linear.name, linear.kind, tuple(architecture.renamed.items()))
    if layer is None:
        return tuple(f"{outer}.{name}" for outer in ("model", *NESTED) for name in local) + local
    return tuple(f"{prefix}.{layer}.{name}" for prefix in prefixes(architecture) for name in local)


@lru_cache(maxsize=4096)
def _local_names(
    module: str, engine: str, kind: str, renamed: tuple[tuple[str, str], ...]
) -> tuple[str, ...]:
    names = [module.replace("{expert}", "0"), engine]
    if kind == "moe":
        block, _, last = module.partition(".{expert}.")
        names += [block, f"{block}.{last}"] if last else [module.rpartition(".")[0]]
        names.append(f"{block}.{'gate_up_proj' if engine.endswith('w13') else 'down_proj'}")
    found = dict.fromkeys(names)
    for old, new in renamed:
        for name in tuple(found):
            steps = [new if step == old else step for step in name.split(".")]
            found[".".join(steps)] = None
    return tuple(found)
