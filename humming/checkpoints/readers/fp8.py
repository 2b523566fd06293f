"""FP8: floats of 8 bits with scales per tensor, per channel or per block; DeepSeek's experts of 4
bits among them.

    weight  float8_e4m3fn or float8_e5m2 [n, k]
    bias    [n], optional
    scales, under one of the names weight_scale_inv, weight_scale, scale:
        one number                  per tensor
        [n] or [n, 1]               per channel
        [ceil(n / B), ceil(k / C)]  blocks of `weight_block_size` [B, C], edges ragged
        [parts]                     one a part of a layer whose parts lie one under another: gate
                                    and up are halves, q, k and v as long as the config's heads
    input_scale or activation_scale
        one number, or one a part   where `activation_scheme` is "static"

    w = code * scale, whatever the name says: "_inv" is the inverse of what codes were made with.

Blocks that are not square are given as groups of C, repeated for each row: the same numbers.
`expert_dtype` "fp4": such weights are uint8 or int8 [n, k / 2], two e2m1 codes a byte, low first,
with `scale` e8m0 [n, k / 32], which is mxfp4. `fbgemm_fp8` is the same with one scale a channel.
Experts stacked in one tensor are in fp8_experts.py.

Sources: transformers, `integrations/finegrained_fp8.py` and `fbgemm_fp8.py`; DeepSeek-V3,
`inference/kernel.py`; llm-compressor and vLLM for scales of fused parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.source import Source
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import from_bytes
from humming.checkpoints.readers import fp8_experts, modelopt
from humming.checkpoints.registry import Reader
from humming.checkpoints.scopes import CHANNEL, FP8_NAMES, TENSOR, Scope, fp8_weight
from humming.checkpoints.small_floats import MX_BLOCK, e8m0
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.quantize.tensor import QuantizedTensor
from humming.spec.formats import QuantFormat

SCALES = ("weight_scale_inv", "weight_scale", "scale")
INPUT_SCALES = ("input_scale", "activation_scale")
SCALE_DTYPES = (*FLOATS, torch.float8_e8m0fnu)
_HALVES = ("gate_up", "gate_and_up", "w13", "w1_w3", "up_gate")
_THIRDS = ("qkv", "query_key_value", "c_attn", "w_pack", "attention.dense_qkv")
"""What the names of layers hold whose parts lie one under another."""


def modules(files: TensorFiles, source: Source) -> Iterable[str]:
    """Modules whose weight has scales beside it, and the experts of stacks that have."""
    ends = tuple(f".{name}" for name in SCALES)
    found = (name.rpartition(".")[0] for name in files.names if name.endswith(ends))
    alone = (name for name in found if f"{name}.weight" in files and _is_narrow(files, name))
    return dict.fromkeys((*alone, *fp8_experts.modules(files, source)))


def _is_narrow(files: TensorFiles, name: str) -> bool:
    """Whether a weight is of 8 bits: a "scale" alone may be a norm's."""
    if f"{name}.weight_scale" in files or f"{name}.weight_scale_inv" in files:
        return True
    dtype = files.info(f"{name}.weight").dtype
    return dtype is not None and dtype.itemsize == 1


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of an fp8 checkpoint."""
    if not module.has("weight"):
        return _read_expert(module)
    if module.has("weight_scale_2"):  # experts in NVFP4 beside fp8, as ModelOpt mixes them
        return modelopt.read(module)
    dtype = module.files.info(module.path("weight")).dtype
    if dtype in (torch.uint8, torch.int8):
        weight, activation = _fp4(module), None
    else:
        weight = read_weight(module, block_of(module))
        activation = _activation(module, weight)
    n = weight.shape[0]
    scale = static_scale(module) if activation and activation.endswith("t") else None
    return CheckpointLayer(
        module.name, weight, module.bias(n), activation, scale, dtype=module.dtype
    )


def _read_expert(module: StoredModule) -> CheckpointLayer:
    stored = fp8_experts.find(module)
    whole = scaled_weight(
        module, stored.weight, stored.scales, block_of(module), stored.suffix, stored.transposed
    )
    low, high = stored.rows(whole.shape[0], module)
    whole = _with_whole_blocks(whole, high - low)
    weight = whole.slice_rows(low, high) if (low, high) != (0, whole.shape[0]) else whole
    activation, scale = _activation(module, whole), None
    if activation.endswith("t"):
        scale = fp8_experts.static_scale(module, stored)
    bias = None if stored.bias is None else stored.bias[low:high]
    return CheckpointLayer(module.name, weight, bias, activation, scale, dtype=module.dtype)


def _with_whole_blocks(weight: QuantizedTensor, height: int) -> QuantizedTensor:
    """`weight` so that all parts `height` rows high have one format: blocks that a seam cuts become
    groups."""
    stored = weight.weight_format
    size = stored.group_size or 1
    if stored.granularity != "block" or height % size == 0:
        return weight
    scales = Scope(size, size).per_row(weight.scales, weight.shape[0])
    return QuantizedTensor(f"{stored.dtype.name}g{size}", weight.codes, scales)


def block_of(module: StoredModule) -> tuple[int, int] | None:
    """`weight_block_size` as (rows, columns); None where scales are not of blocks."""
    source = module.source
    block = source.values.get("weight_block_size")
    if block is None:
        return None
    sound = isinstance(block, list) and len(block) == 2 and all(type(side) is int for side in block)
    if not sound or min(block) < 1 or max(block) > 2**24:
        key = source.path("weight_block_size")
        raise fault(source.file, key, "two positive integers", block)
    return block[0], block[1]


def read_weight(module: StoredModule, block: tuple[int, int] | None) -> QuantizedTensor:
    """The fp8 weight of `module` with whatever scales it has."""
    weight = module.tensor("weight", tuple(FP8_NAMES), (None, None))
    suffix = module.first(*SCALES)
    if suffix is None:
        raise module.files.missing(module.path(SCALES[block is None]))
    return scaled_weight(module, weight, module.scales(suffix, SCALE_DTYPES), block, suffix)


def scaled_weight(
    module: StoredModule,
    weight: torch.Tensor,
    scales: torch.Tensor,
    block: tuple[int, int] | None,
    suffix: str,
    transposed: bool = False,
) -> QuantizedTensor:
    """The fp8 `weight` [n, k] times `scales`, the tensor called `suffix`, of a tensor, of channels,
    of `block` or of parts; both may be stored as [k, n]."""
    if transposed:
        weight, scales = weight.t().contiguous(), scales.t() if scales.ndim == 2 else scales
    if scales.dtype == torch.float8_e8m0fnu:
        scales = scales.to(torch.float32)
    n, k = weight.shape
    shape, scope = tuple(scales.shape), CHANNEL
    if scales.numel() == 1:
        scope = TENSOR
    elif block is not None and shape == Scope(*block).shape(n, k):
        scope = Scope(*block)
    elif shape not in ((n,), (n, 1)):
        scales = _of_parts(module, scales, suffix, n, block)
    return fp8_weight(module, weight, scales, scope, suffix)


def _of_parts(
    module: StoredModule,
    scales: torch.Tensor,
    suffix: str,
    n: int,
    block: tuple[int, int] | None,
) -> torch.Tensor:
    """[n, 1]: the scale of each row's part, of a layer whose name says that its parts lie one under
    another. Where the config says blocks, scales of another shape are a damaged file's."""
    flat = scales.reshape(-1)
    plain = max(scales.shape) == len(flat) and block is None
    lengths = _part_lengths(module, suffix, len(flat), n) if plain else None
    if lengths is None:
        raise module.fault(
            f"`{suffix}` must be one number, one a row ({n}), one a block of the config's "
            f"weight_block_size, or one a part of gate_up or qkv",
            list(scales.shape),
            "which weights each of them scales cannot be known",
        )
    parts = [flat[at].expand(length) for at, length in enumerate(lengths)]
    return torch.cat(parts).reshape(n, 1)


def _part_lengths(module: StoredModule, suffix: str, parts: int, n: int) -> Sequence[int] | None:
    name = module.path(suffix).lower()
    if parts == 2 and any(part in name for part in _HALVES):
        return None if n % 2 else (n // 2, n // 2)
    model = module.source.model
    heads, kv_heads = model.get("num_attention_heads"), model.get("num_key_value_heads")
    kv_heads = heads if kv_heads is None else kv_heads
    fused = any(part in name for part in _THIRDS)
    if parts != 3 or not fused or type(heads) is not int or type(kv_heads) is not int:
        return None
    all_heads = heads + 2 * kv_heads
    if min(heads, kv_heads) < 1 or n % all_heads:
        return None
    head = n // all_heads
    return heads * head, kv_heads * head, kv_heads * head


def static_scale(module: StoredModule) -> torch.Tensor:
    """fp32 [1]: the stored scale of x; the largest where fused parts have one each."""
    suffix = module.first(*INPUT_SCALES)
    if suffix is None:
        raise module.files.missing(module.path(INPUT_SCALES[0]))
    scale = module.scales(suffix).to(torch.float32).reshape(-1).amax().reshape(1)
    if not scale.is_meta and not bool(scale > 0):
        raise module.fault(f"`{suffix}` must be above 0", f"{float(scale)}", "the file is damaged")
    return scale


def _activation(module: StoredModule, weight: QuantizedTensor) -> str:
    """How x is quantized: static per tensor, by token, or by token and group as blocks want it."""
    stored = QuantFormat.parse(weight.format).weight
    if module.source.values.get("activation_scheme") == "static":
        return f"{stored.dtype.name}t"
    return f"{stored.dtype.name}g{stored.group_size}" if stored.group_size else stored.dtype.name


def _fp4(module: StoredModule) -> QuantizedTensor:
    packed = module.tensor("weight", (torch.uint8, torch.int8), (None, None)).view(torch.uint8)
    n, k = packed.shape[0], packed.shape[1] * 2
    suffix = module.first(*SCALES) or SCALES[0]
    shape = (n, -(-k // MX_BLOCK))
    scales = module.tensor(suffix, (torch.float8_e8m0fnu, torch.uint8), shape)
    return QuantizedTensor("mxfp4", from_bytes(packed, 4, k), e8m0(module, scales, suffix))


READER = Reader(
    title="FP8",
    methods=("fp8", "fbgemm-fp8"),
    modules=modules,
    read=read,
    formats=("fp8e4m3t", "fp8e4m3", "fp8e4m3b128", "fp8e5m2", "mxfp4", "nvfp4"),
)
