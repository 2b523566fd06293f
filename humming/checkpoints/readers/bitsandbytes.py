"""bitsandbytes: int8, fp4 and nf4.

int8, one scale a row:
    weight  int8 [n, k]      SCB  fp32 [n]      w = code * SCB / 127

4 bits, two codes a byte, high first, of the weight as one long row cut into blocks:
    weight            uint8 [n * k / 2, 1]
    weight.absmax     fp32 [blocks], or uint8 with a second level
    weight.quant_map  fp32 [16], the value of each code
    weight.nested_absmax, weight.nested_quant_map    absmax = map[code] * nested_absmax + offset
    weight.quant_state.bitsandbytes__fp4 or ..__nf4  JSON as bytes: shape, blocksize, dtype, offset

fp4's values are 0, 1/192, 1/6, 1/4, 1/3, 1/2, 2/3 and 1: those of no float of 4 bits, but 24 times
them are 0.125, 4, 6, 8, 12, 16 and 24, which fp5e3m1 has. So the nearest lossless description is
fp5e3m1 with a scale of absmax / 24, in groups of the block size where rows hold whole blocks, else
of a size that divides both. nf4's values are quantiles of a normal distribution, which no format
here holds: such a weight is given as the floats that bitsandbytes itself would multiply with.

Source: bitsandbytes, `functional.py` (QuantState) and `nn/modules.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from humming.checkpoints.config.source import Source
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import nibbles_high_first
from humming.checkpoints.registry import Reader
from humming.checkpoints.stored import StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.quantize.tensor import QuantizedTensor

_STATE = "weight.quant_state.bitsandbytes__"
_INT8_RANGE = 127.0
_FP4_UNIT = 24.0
_FP4_CODES = (0, 1, 14, 15, 12, 13, 10, 11)
"""Code of fp5e3m1 for each of fp4's eight magnitudes 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4."""
_FP4_VALUES = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_SMALLEST_GROUP = 8
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class _State:
    """What a 4-bit weight's JSON says."""

    kind: str
    shape: tuple[int, int]
    block: int
    dtype: torch.dtype
    nested_block: int
    offset: float


def modules(files: TensorFiles, source: Source) -> Iterable[str]:  # noqa: ARG001
    """Modules with a 4-bit state or with int8 scales."""
    names = (_module_of(name) for name in files.names)
    return dict.fromkeys(name for name in names if name)


def _module_of(name: str) -> str:
    if name.endswith(".SCB"):
        return name.removesuffix(".SCB").removesuffix(".weight")
    start, found, _ = name.rpartition(f".{_STATE}")
    return start if found else ""


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of a bitsandbytes checkpoint."""
    kind = module.first(f"{_STATE}fp4", f"{_STATE}nf4")
    if kind is None:
        weight: QuantizedTensor | torch.Tensor = _int8(module)
        return CheckpointLayer(
            module.name, weight, module.bias(weight.shape[0]), dtype=module.dtype
        )
    state = _state(module, kind)
    note = ""
    if state.kind == "fp4" and math.gcd(state.block, state.shape[1]) >= _SMALLEST_GROUP:
        weight = _fp4(module, state)
    else:
        weight = _floats(module, state)
        note = (
            "nf4 has levels that no format here holds"
            if state.kind == "nf4"
            else f"blocks of {state.block} straddle rows of k={state.shape[1]}"
        )
    bias = module.bias(state.shape[0])
    return CheckpointLayer(module.name, weight, bias, dtype=module.dtype, note=note)


def _int8(module: StoredModule) -> QuantizedTensor:
    weight = module.tensor("weight", (torch.int8,), (None, None))
    suffix = module.first("SCB", "weight.SCB") or "SCB"
    absmax = module.scales(suffix, (torch.float32,), (weight.shape[0],))
    scales = (absmax.to(torch.float64) / _INT8_RANGE).to(torch.float32)
    return module.checked(QuantizedTensor("int8", weight, scales.reshape(-1, 1)))


def _fp4(module: StoredModule, state: _State) -> QuantizedTensor:
    n, k = state.shape
    _check_map(module)
    table = torch.tensor([*_FP4_CODES, *(code + 16 for code in _FP4_CODES)], dtype=torch.uint8)
    stored = _codes(module, state).to(torch.int64)
    codes = table.to(stored.device)[stored].view(n, k)
    size = math.gcd(state.block, k)
    scales = (_absmax(module, state).to(torch.float64) / _FP4_UNIT).to(torch.float32)
    grouped = scales.repeat_interleave(state.block // size)[: n * k // size].view(n, k // size)
    return module.checked(QuantizedTensor(f"fp5e3m1g{size}", codes, grouped.contiguous()))


def _floats(module: StoredModule, state: _State) -> torch.Tensor:
    n, k = state.shape
    values = module.scales("weight.quant_map", (torch.float32,), (16,))
    absmax = _absmax(module, state).repeat_interleave(state.block)[: n * k]
    return (values[_codes(module, state).to(torch.int64)] * absmax).to(state.dtype).view(n, k)


def _codes(module: StoredModule, state: _State) -> torch.Tensor:
    """uint8 [n * k]."""
    n, k = state.shape
    packed = module.tensor("weight", (torch.uint8,))
    if packed.numel() != -(-n * k // 2):
        raise module.fault(
            f"`weight` must hold {-(-n * k // 2)} bytes for [{n}, {k}]",
            packed.numel(),
            "the file is damaged",
        )
    return nibbles_high_first(packed.reshape(-1))[: n * k]


def _absmax(module: StoredModule, state: _State) -> torch.Tensor:
    """fp32 [blocks], as bitsandbytes computes it where there is a second level."""
    blocks = -(-state.shape[0] * state.shape[1] // state.block)
    if not module.has("weight.nested_absmax"):
        return module.scales("weight.absmax", (torch.float32,), (blocks,))
    codes = module.tensor("weight.absmax", (torch.uint8,), (blocks,))
    values = module.scales("weight.nested_quant_map", (torch.float32,), (256,))
    shape = (-(-blocks // state.nested_block),)
    nested = module.scales("weight.nested_absmax", (torch.float32,), shape)
    wide = nested.repeat_interleave(state.nested_block)[:blocks]
    return values[codes.to(torch.int64)] * wide + state.offset


def _check_map(module: StoredModule) -> None:
    """An fp4 weight whose codes mean other values than bitsandbytes' own is none."""
    values = module.scales("weight.quant_map", (torch.float32,), (16,))
    known = torch.tensor([*_FP4_VALUES, *(-value for value in _FP4_VALUES)])
    if not values.is_meta and not torch.allclose(values, known, rtol=1e-5, atol=0):
        raise module.fault(
            "`weight.quant_map` must be that of fp4", "other values", "the file is damaged"
        )


def _state(module: StoredModule, suffix: str) -> _State:
    module.tensor(suffix, (torch.uint8,), (None,))
    data = bytes(module.files.numbers(module.path(suffix)))
    try:
        found: Any = json.loads(data)
        shape, block = tuple(found["shape"]), found["blocksize"]
        nested, offset = found.get("nested_blocksize", 1), float(found.get("nested_offset", 0.0))
        dtype = _DTYPES[found["dtype"]]
        sound = [*shape, block, nested]
        if len(shape) != 2 or any(type(size) is not int or size < 1 for size in sound):
            raise ValueError
        if not math.isfinite(offset):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise module.fault(
            f"`{suffix}` must say shape [n, k], blocksize and dtype",
            f"{len(data)} bytes that do not",
            "the file is damaged",
        ) from None
    return _State(suffix.removeprefix(_STATE), shape, block, dtype, nested, offset)


READER = Reader(
    title="bitsandbytes",
    methods=("bitsandbytes",),
    modules=modules,
    read=read,
    formats=("int8", "fp5e3m1g64"),
)
