"""gpt-oss MXFP4: experts of e2m1 codes in blocks of 32 with e8m0 scales, all experts of a layer in
one tensor.

    <block>.gate_up_proj_blocks  uint8 [experts, 2 * i, h / 32, 16]  two codes a byte, low first
    <block>.gate_up_proj_scales  uint8 [experts, 2 * i, h / 32]      exponent + 127
    <block>.gate_up_proj_bias    float [experts, 2 * i]              optional
    <block>.down_proj_..         the same with n = h, k = i

    w[r, j] = code[r, j] * 2^(scale[r, j // 32] - 127)

Rows of gate_up_proj alternate: gate, up, gate, up. They are given apart, as layers called
`<block>.<expert>.gate_proj`, `.up_proj` and `.down_proj`, as other models' experts are.

Source: transformers, `integrations/mxfp4.py` and `models/gpt_oss/modeling_gpt_oss.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from humming.checkpoints.config.source import Source
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import from_bytes
from humming.checkpoints.registry import Reader
from humming.checkpoints.small_floats import e8m0
from humming.checkpoints.stored import StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.quantize.tensor import QuantizedTensor

_ENDS = ("_blocks", "_scales")
_BYTES = (torch.uint8,)
_PARTS = {"gate_proj": ("gate_up_proj", 0, 2), "up_proj": ("gate_up_proj", 1, 2)}
"""A part -> the tensor that holds it, its first row there, and the step to its next."""


def modules(files: TensorFiles, source: Source) -> Iterable[str]:  # noqa: ARG001
    """`<block>.<expert>.<part>` for each expert of each stacked tensor."""
    for name in files.names:
        if not name.endswith(_ENDS):
            continue
        block, _, stacked = name[: -len(_ENDS[0])].rpartition(".")
        parts = [part for part, (home, _, _) in _PARTS.items() if home == stacked] or [stacked]
        for expert in range((*files.info(name).shape, 0)[0]):
            yield from (f"{block}.{expert}.{part}" for part in parts)


def read(module: StoredModule) -> CheckpointLayer:
    """One part of one expert."""
    block, expert, part = module.name.rsplit(".", 2)
    home, start, step = _PARTS.get(part, (part, 0, 1))
    stacked = module.at(block)
    blocks = stacked.tensor(f"{home}_blocks", _BYTES, (None, None, None, 16))
    experts, n, groups, _ = blocks.shape
    scales = stacked.tensor(f"{home}_scales", _BYTES, (experts, n, groups))
    biases = stacked.optional(f"{home}_bias", shape=(experts, n))
    if n % step:
        raise module.fault("rows of gate and up must alternate", f"{n} rows", "the file is damaged")
    rows = slice(start, None, step)
    packed = blocks[int(expert), rows].reshape(n // step, groups * 16)
    exponents = e8m0(module, scales[int(expert), rows], f"{home}_scales")
    weight = QuantizedTensor("mxfp4", from_bytes(packed, 4, groups * 32), exponents)
    bias = None
    if biases is not None:
        bias = stacked.finite(f"{home}_bias", biases[int(expert), rows]).contiguous()
    return CheckpointLayer(module.name, weight, bias, dtype=module.dtype)


READER = Reader(
    title="gpt-oss MXFP4",
    methods=("mxfp4",),
    modules=modules,
    read=read,
    formats=("mxfp4",),
)
