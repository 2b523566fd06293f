"""ModelOpt's experts stacked in one tensor, as Llama 4 and gpt-oss have them; what scales mean is
in modelopt.py.

    <block>.gate_up_proj                 fp8 [experts, h, 2 * i], or uint8 [experts, h / 2, 2 * i]
                                         of two e2m1 codes a byte, the even input feature low
    <block>.gate_up_proj_weight_scale    one number, [experts], or fp8 [experts, h / 16, 2 * i], or
                                         e8m0 as bytes [experts, h / 32, 2 * i]
    <block>.gate_up_proj_weight_scale_2  fp32, one number or [experts] (NVFP4)
    <block>.gate_up_proj_input_scale     fp32, one number or [experts]
    <block>.gate_up_proj_bias            [experts, 2 * i], optional
    <block>.down_proj, ..                the same with n = h, k = i

Of gate_up_proj the first half of the outputs is gate, the second up; of gpt-oss they alternate.
Experts are given as `<block>.<expert>.gate_proj`, `.up_proj` and `.down_proj`.

Source: TensorRT-Model-Optimizer, `modelopt/torch/export/unified_export_hf.py`, `layer_utils.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from humming.checkpoints.packing import from_bytes
from humming.checkpoints.scopes import FP8_NAMES, TENSOR, fp8_weight
from humming.checkpoints.small_floats import MX_BLOCK, NV_GROUP, e8m0
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.quantize.tensor import QuantizedTensor

SCALE = "_weight_scale"
_PARTS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
_STACK_OF = {part: stack for stack, parts in _PARTS.items() for part in parts}
_CODES = (torch.uint8, *FP8_NAMES)
_ALTERNATING = "gpt_oss"


@dataclass(frozen=True)
class ExpertPart:
    """Part `at` of `parts` parts of one expert in the stack whose tensors begin with `stack`."""

    stack: StoredModule
    expert: int
    at: int
    parts: int

    @staticmethod
    def of(module: StoredModule) -> ExpertPart | None:
        """What `module` is a part of; None where it is a module of its own."""
        home, _, part = module.name.rpartition(".")
        block, _, number = home.rpartition(".")
        stack = module.at(f"{block}.{_STACK_OF.get(part, '')}")
        if module.has("weight") or not number.isdecimal() or stack.name not in module.files:
            return None
        names = _PARTS[_STACK_OF[part]]
        return ExpertPart(stack, int(number), names.index(part), len(names))

    def tensor(self, end: str, dtypes: tuple[torch.dtype, ...]) -> torch.Tensor:
        """The stack's tensor whose name ends so."""
        place, _, name = self.stack.name.rpartition(".")
        return self.stack.at(place).tensor(f"{name}{end}", dtypes)

    def has(self, end: str) -> bool:
        """Whether there is one."""
        return f"{self.stack.name}{end}" in self.stack.files

    def number(self, end: str) -> torch.Tensor:
        """fp32 [1]: this expert's number, or the one of all."""
        stored = self.tensor(end, FLOATS).reshape(-1)
        found = (stored[self.expert] if stored.numel() > 1 else stored[0]).reshape(1)
        found = found.to(torch.float32)
        if not found.is_meta and not bool(torch.isfinite(found) & (found > 0)):
            rule = f"`{self.stack.name}{end}` must be above 0 and finite"
            raise self.stack.fault(rule, float(found), "the file is damaged")
        return found

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """This part's of `tensor` [outputs of all parts, ..]."""
        if self.parts == 1:
            return tensor
        if str(self.stack.source.model.get("model_type")) == _ALTERNATING:
            return tensor[self.at :: self.parts]
        return tensor.chunk(self.parts)[self.at]

    def slice(self, tensor: torch.Tensor, what: str) -> torch.Tensor:
        """[n, ..] of this part out of `tensor` [experts, .., outputs of all parts]."""
        if tensor.ndim != 3 or not self.expert < tensor.shape[0] or tensor.shape[2] % self.parts:
            rule = f"`{what}` must be [experts, k, n] with expert {self.expert} and whole parts"
            raise self.stack.fault(rule, list(tensor.shape), "the file is wrong")
        return self.rows(tensor[self.expert].t())


def modules(files: TensorFiles) -> Iterator[str]:
    """`<block>.<expert>.<part>` of each stack with scales, or of codes, which must have some."""
    for name in files.names:
        block, _, stack = name.rpartition(".")
        if stack not in _PARTS:
            continue
        info = files.info(name)
        coded = info.dtype in _CODES or f"{name}{SCALE}" in files
        for expert in range(info.shape[0] if len(info.shape) == 3 and coded else 0):
            for part in _PARTS[stack]:
                yield f"{block}.{expert}.{part}"


def read_weight(module: StoredModule, part: ExpertPart) -> QuantizedTensor:
    """The weight of `module`, which is `part` of a stack."""
    name = part.stack.name
    stored = part.tensor("", _CODES)
    weight = part.slice(stored, name).contiguous()
    if stored.dtype in FP8_NAMES:
        return fp8_weight(module, weight, part.number(SCALE), TENSOR, f"{name}{SCALE}")
    scales = part.tensor(SCALE, (torch.float8_e4m3fn, torch.uint8, torch.float8_e8m0fnu))
    group = NV_GROUP if scales.dtype == torch.float8_e4m3fn else MX_BLOCK
    n, k = weight.shape[0], 2 * weight.shape[1]
    per_group = part.slice(scales.view(torch.uint8), f"{name}{SCALE}").contiguous()
    if tuple(per_group.shape) != (n, -(-k // group)):
        rule = f"`{name}{SCALE}` of a weight [{n}, {k}] must be [{n}, {-(-k // group)}]"
        raise module.fault(rule, list(per_group.shape), "the file is wrong")
    codes = from_bytes(weight, 4, k).contiguous()
    if group == MX_BLOCK:
        return QuantizedTensor("mxfp4", codes, e8m0(module, per_group, f"{name}{SCALE}"))
    fine = per_group.view(torch.float8_e4m3fn)
    if not fine.is_meta and bool(torch.isnan(fine.to(torch.float32)).any()):
        raise module.fault(f"`{name}{SCALE}` must be finite", "NaN", "the file is damaged")
    second = part.number("_weight_scale_2")
    return module.checked(QuantizedTensor("nvfp4", codes, fine, global_scales=second))


def bias(part: ExpertPart) -> torch.Tensor | None:
    """The part's bias [n], finite, or None."""
    if not part.has("_bias"):
        return None
    stored = part.tensor("_bias", FLOATS)
    if stored.ndim != 2 or not part.expert < stored.shape[0]:
        rule = f"`{part.stack.name}_bias` must be [experts, n]"
        raise part.stack.fault(rule, list(stored.shape), "the file is wrong")
    place, _, name = part.stack.name.rpartition(".")
    rows = part.rows(stored[part.expert]).contiguous()
    return part.stack.at(place).finite(f"{name}_bias", rows)
