"""FP8 experts of a block stacked in one tensor, as some models have them; what scales mean is in
fp8.py.

    <block>.gate_up_proj             fp8 [experts, 2 * i, h], gate above up
    <block>.gate_up_proj_scale_inv   [experts], or for each expert as fp8.py has scales
    <block>.gate_up_proj_bias        [experts, 2 * i], optional
    <block>.gate_up_proj_activation_scale   [experts], where activations are static
    <block>.down_proj, ..            the same with n = h, k = i

Some models have [experts, h, 2 * i], and scales likewise: told by where the config's `hidden_size`
stands. Experts are given as `<block>.<expert>.gate_proj`, `.up_proj` and `.down_proj`.

Source: transformers, `integrations/finegrained_fp8.py` (FP8Experts) and `conversion_mapping.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from humming.checkpoints.config.source import Source
from humming.checkpoints.scopes import FP8_NAMES
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.checkpoints.tensor_files import TensorFiles

_ENDS = ("_scale_inv", "_weight_scale", "_scale")
_STATIC = ("_activation_scale", "_input_scale")
_STACKS = {"gate_up_proj": ("gate_proj", "up_proj"), "up_proj": ("up_proj",),
           "down_proj": ("down_proj",)}  # fmt: skip
"""A stacked tensor -> the parts that lie in it, one under another."""


@dataclass(frozen=True)
class StackedExpert:
    """One expert's slice of a stack: `weight` and `scales` as stored, `transposed` where that is
    [k, n]; `part` of `parts` parts is meant."""

    home: str
    expert: int
    weight: torch.Tensor
    scales: torch.Tensor
    suffix: str
    bias: torch.Tensor | None
    transposed: bool
    part: int
    parts: int

    def rows(self, n: int, module: StoredModule) -> tuple[int, int]:
        """Where the part lies in the n rows of all parts."""
        if n % self.parts:
            raise module.fault(f"`{self.home}` must hold halves", f"{n} rows", "it is damaged")
        height = n // self.parts
        return self.part * height, (self.part + 1) * height


def modules(files: TensorFiles, source: Source) -> Iterable[str]:  # noqa: ARG001
    """`<block>.<expert>.<part>` of each stack of codes in three dimensions."""
    for name in files.names:
        block, _, home = name.rpartition(".")
        if home not in _STACKS:
            continue
        info = files.info(name)
        if len(info.shape) == 3 and info.dtype in FP8_NAMES:
            for expert in range(info.shape[0]):
                yield from (f"{block}.{expert}.{part}" for part in _STACKS[home])


def find(module: StoredModule) -> StackedExpert:
    """The slice of a stack that `module` is; CheckpointError where it is none, and so lacks its
    weight."""
    above, _, part = module.name.rpartition(".")
    block, _, number = above.rpartition(".")
    stacks = module.at(block)
    home = stacks.first(*(home for home, parts in _STACKS.items() if part in parts))
    if home is None or not number.isdecimal():
        raise module.files.missing(module.path("weight"))
    expert = int(number)
    weight = stacks.tensor(home, tuple(FP8_NAMES), (None, None, None))
    suffix = stacks.first(*(home + end for end in _ENDS))
    if suffix is None:
        raise module.files.missing(stacks.path(home + _ENDS[0]))
    scales = stacks.scales(suffix, (*FLOATS, torch.float8_e8m0fnu))
    experts = weight.shape[0]
    if scales.numel() > 1 and scales.shape[0] != experts:
        raise module.fault(
            f"`{suffix}` must be one number, or hold those of {experts} experts",
            list(scales.shape),
            "the file is damaged",
        )
    transposed = _is_transposed(module, home, tuple(weight.shape))
    n = weight.shape[2] if transposed else weight.shape[1]
    biases = stacks.optional(f"{home}_bias", FLOATS, (experts, n))
    return StackedExpert(
        home=home,
        expert=expert,
        weight=weight[expert],
        scales=scales.reshape(1) if scales.numel() == 1 else scales[expert],
        suffix=suffix,
        bias=None if biases is None else stacks.finite(f"{home}_bias", biases[expert]),
        transposed=transposed,
        part=_STACKS[home].index(part),
        parts=len(_STACKS[home]),
    )


def static_scale(module: StoredModule, stored: StackedExpert) -> torch.Tensor:
    """fp32 [1]: the scale of x for this expert."""
    stacks = module.at(module.name.rsplit(".", 2)[0])
    suffix = stacks.first(*(stored.home + end for end in _STATIC)) or f"{stored.home}{_STATIC[0]}"
    scales = stacks.scales(suffix).to(torch.float32).reshape(-1)
    scale = scales[stored.expert % len(scales)].reshape(1)
    if not scale.is_meta and not bool(scale > 0):
        raise module.fault(f"`{suffix}` must be above 0", f"{float(scale)}", "the file is damaged")
    return scale


def _is_transposed(module: StoredModule, home: str, shape: tuple[int, ...]) -> bool:
    """Whether [experts, k, n] is stored: `hidden_size` is k of what comes in, n of what goes
    out."""
    hidden = module.source.model.get("hidden_size")
    place = 1 if home == "down_proj" else 2
    return shape[place] != hidden and shape[3 - place] == hidden
