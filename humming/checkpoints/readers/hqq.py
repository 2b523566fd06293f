"""HQQ: integers of 1 to 8 bits with float zero points.

    W_q         uint8 or, of 3 bits, int32 [rows, columns]: codes of the weight as [groups, size]
                (axis 1), cut into as many runs of rows as a word holds codes, the first run high:
                8, 6 and 5 bits one a byte, 4 two, 2 four, 1 eight, 3 ten in an int32
    scale, zero float [groups, 1]; or both in zero_scale [2, groups, 1]
    shape       int [2]: n, k
    nbits, axis, packing (letters as bytes), ..: as tensors, else by the config; bias [n], optional

    w = (code - zero) * scale

Groups run over the weight as one long row; where they straddle rows they are given in smaller ones.
Axis 0, where a group is a column's, has no name here: refused. HQQ itself rounds `code - zero` to
its compute type before it multiplies; here it is exact.

Source: hqq, `hqq/core/quantize.py` and `hqq/core/bitpack.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.registry import Reader, having
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.quantize.tensor import QuantizedTensor

_WORDS = (torch.uint8, torch.int32)
_NUMBERS = (*FLOATS, torch.uint8, torch.int32, torch.int64)
_FIELD_BITS = {8: 8, 6: 8, 5: 8, 4: 4, 3: 3, 2: 2, 1: 1}
"""Bits that a code of so many takes in a word."""
_TERNARY = 1.58


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of an HQQ checkpoint."""
    for name in ("quant_zero", "quant_scale"):
        if int(_number(module, name, 0)):
            raise module.fault(
                "scales and zero points must be floats", f"{name}", "quantize the model without it"
            )
    axis = _number(module, "axis", 1)
    if axis != 1:
        raise module.fault(
            "`axis` must be 1, groups along k", axis, "quantize the model with axis=1"
        )
    n, k = _shape(module)
    bits = _bits(module)
    scales, zeros = _qparams(module, n * k)
    size = n * k // scales.numel()
    codes = _codes(module, bits, scales.numel(), size, (n, k))
    group = math.gcd(size, k)
    name = f"uint{bits}{'' if group == k else f'g{group}'}zf"

    def laid(per_group: torch.Tensor) -> torch.Tensor:
        return per_group.reshape(-1).repeat_interleave(size // group).view(n, k // group)

    weight = QuantizedTensor(name, codes, laid(scales), laid(zeros))
    return CheckpointLayer(module.name, module.checked(weight), module.bias(n), dtype=module.dtype)


def _bits(module: StoredModule) -> int:
    stored = _number(module, "nbits", None)
    bits = 2 if stored is not None and abs(float(stored) - _TERNARY) < 0.01 else stored
    if bits not in _FIELD_BITS:
        known = ", ".join(map(str, sorted(_FIELD_BITS)))
        raise module.fault(f"`nbits` must be one of {known}", stored, "quantize the model anew")
    return int(bits)


def _shape(module: StoredModule) -> tuple[int, int]:
    module.tensor("shape", (torch.int32, torch.int64), (2,))
    n, k = module.files.numbers(module.path("shape"))
    if not (1 <= n < 2**31 and 1 <= k < 2**31):
        raise module.fault("`shape` must be of a weight", f"[{n}, {k}]", "the file is damaged")
    return n, k


def _qparams(module: StoredModule, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    if module.has("zero_scale"):
        zeros, scales = module.scales("zero_scale").unbind(0)
    else:
        scales, zeros = module.scales("scale"), module.scales("zero")
    if scales.shape != zeros.shape or elements % scales.numel():
        raise module.fault(
            f"`scale` and `zero` must be one a group of {elements} weights",
            f"{list(scales.shape)} and {list(zeros.shape)}",
            "the file is damaged",
        )
    return scales, zeros


def _codes(
    module: StoredModule, bits: int, groups: int, size: int, shape: tuple[int, int]
) -> torch.Tensor:
    """uint8 [n, k]."""
    field = _FIELD_BITS[bits]
    word, wide = (torch.int32, 30) if field == 3 else (torch.uint8, 8)
    stored = module.tensor("W_q", (*FLOATS, *_WORDS), (None, None)).contiguous().view(word)
    each = wide // field
    rows = -(-groups // each)
    if tuple(stored.shape) != (rows, size) or (field != 3 and groups % each):
        raise module.fault(
            f"`W_q` must be [{rows}, {size}] for {groups} groups of {size} codes of {bits} bits",
            list(stored.shape),
            "the file is damaged, or its groups are not along k",
        )
    mask = (1 << field) - 1
    runs = [(stored >> (field * (each - 1 - at))) & mask for at in range(each)]
    return torch.cat(runs)[:groups].to(torch.uint8).reshape(shape)


def _number(module: StoredModule, name: str, otherwise: Any) -> Any:
    """A number of the module's own, else of the config."""
    if module.has(name):
        tensor = module.tensor(name, _NUMBERS)
        if tensor.numel() != 1:
            raise module.fault(f"`{name}` must be one number", list(tensor.shape), "it is damaged")
        return module.files.numbers(module.path(name))[0]
    config: Any = module.source.values.get("quant_config")
    tag = ".".join(
        step
        for step in module.name.split(".")
        if step not in ("model", "layers") and not step.isdecimal()
    )
    if isinstance(config, Mapping) and isinstance(config.get(tag), Mapping):
        config = config[tag]
    params = config.get("weight_quant_params") if isinstance(config, Mapping) else None
    value = params.get(name, otherwise) if isinstance(params, Mapping) else otherwise
    return value if isinstance(value, (int, float)) else otherwise


READER = Reader(
    title="HQQ",
    methods=("hqq",),
    modules=having("W_q"),
    read=read,
    formats=("uint4g64zf", "uint8zf", "uint3g64zf", "uint2g16zf", "uint1g32zf"),
)
