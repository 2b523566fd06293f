"""compressed-tensors, which llm-compressor writes: integers and floats of many shapes, told apart
by `config_groups`, whose targets are names, `re:` and a regular expression, or "Linear".

    weight_packed        int32: integers plus 2^(bits-1), in a row one stream of bits, low first
                         (before version 0.18 as many whole codes as a word holds, which differs for
                         3, 5, 6 and 7 bits); uint8: floats of 4 or 6 bits, low first
    weight               int8 (of num_bits in range) or float8_e4m3fn [n, k], where not packed
    weight_shape         int [2]: n, k of the integers packed
    weight_scale         by `strategy`: tensor [1], channel [n, 1], group [n, k / group_size], block
                         [n / rows, k / columns]; of mx floats e8m0 as bytes, of nvfp4 fp8
    weight_zero_point    int8 like the scales; packed as the codes are, but along n
    weight_g_idx         int [k], optional: the group of each input feature (actorder "group")
    weight_global_scale  fp32 [1], nvfp4: scales are divided by it
    input_scale, input_global_scale, bias

    w = (code - zero_point) * scale [/ global_scale]

Weights rotated for a transform of x at run time, and sparse formats, are refused.

Source: compressed-tensors, `compressors/`, `quantization/quant_args.py` and `utils/match.py`.
"""

from __future__ import annotations

import torch

from humming.checkpoints.integers import integer_weight
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import from_bytes, from_words, words_for
from humming.checkpoints.readers.compressed_tensors_config import Group, group_of
from humming.checkpoints.registry import Reader, having
from humming.checkpoints.scopes import FP8_NAMES, fp8_weight, signed_weight
from humming.checkpoints.small_floats import inverse, mx_weight, nvfp4_weight, one_number
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.quantize.tensor import QuantizedTensor

PACKED, SCALE, ZERO = "weight_packed", "weight_scale", "weight_zero_point"
_INTEGERS = (torch.int32, torch.int64)
_DENSE_SINCE = (0, 18)


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of a compressed-tensors checkpoint."""
    group = group_of(module)
    weight = _weight(module, group)
    note = "" if isinstance(weight, QuantizedTensor) else "the file holds it not compressed"
    return CheckpointLayer(
        module.name,
        weight,
        module.bias(weight.shape[0]),
        group.activation,
        _activation_scale(module, group),
        module.dtype,
        note,
    )


def _weight(module: StoredModule, group: Group) -> QuantizedTensor | torch.Tensor:
    if not module.has(SCALE):
        raise module.files.missing(module.path(SCALE))
    if group.float_format:
        return _small_float(module, group.float_format)
    if module.has(PACKED) or module.has("weight_shape"):
        return _packed(module, group)
    info = module.files.info(module.path("weight"))
    if info.dtype in FLOATS:
        return module.tensor("weight", FLOATS, (None, None))
    if group.kind == "float":
        weight = module.tensor("weight", tuple(FP8_NAMES), (None, None))
        return fp8_weight(module, weight, module.scales(SCALE), group.scope, SCALE)
    codes = module.tensor("weight", (torch.int8,), (None, None))
    groups_of = _groups_of(module)
    zeros = None if group.symmetric else module.tensor(ZERO, (torch.int8,))
    if groups_of is not None:
        return _scattered(module, group, codes, zeros, groups_of)
    scales = module.scales(SCALE)
    return signed_weight(module, codes, scales, group.scope, SCALE, group.bits, zeros)


def _small_float(module: StoredModule, format: str) -> QuantizedTensor:
    if format == "nvfp4":
        divisor = one_number(module, "weight_global_scale")
        return nvfp4_weight(module, PACKED, SCALE, inverse(divisor))
    packed = "weight" if format.startswith("mxfp8") else PACKED
    return mx_weight(module, format, packed, SCALE)


def _packed(module: StoredModule, group: Group) -> QuantizedTensor:
    words = module.tensor(PACKED, (torch.int32,), (None, None))
    n, k = _shape(module, words)
    bits = group.bits
    dense = _is_dense(module, words.shape[1], k, bits)
    codes = _unpacked(words, bits, k, dense)
    scales = module.scales(SCALE)
    laid = group.scope.per_row(group.scope.laid(module, SCALE, scales, n, k), n)
    if group.symmetric:
        zeros = torch.full_like(laid, 1 << (bits - 1), dtype=torch.uint8)
    else:
        height = words_for(n, bits) if dense else -(-n // (32 // bits))
        stored = module.tensor(ZERO, (torch.int32,), (height, laid.shape[1]))
        zeros = _unpacked(stored.t(), bits, n, dense).t()
    return _integers(module, group, codes, laid, zeros, _groups_of(module))


def _scattered(
    module: StoredModule,
    group: Group,
    codes: torch.Tensor,
    zeros: torch.Tensor | None,
    groups_of: torch.Tensor,
) -> QuantizedTensor:
    """Codes that are not packed, but stand in activation order."""
    n, k = codes.shape
    middle = 1 << (group.bits - 1)
    laid = group.scope.laid(module, SCALE, module.scales(SCALE), n, k)
    if zeros is None:
        zeros = torch.zeros_like(laid, dtype=torch.int8)
    unsigned = (codes.to(torch.int16) + middle).to(torch.uint8)
    return _integers(
        module,
        group,
        unsigned,
        laid,
        (group.scope.laid(module, ZERO, zeros, n, k).to(torch.int16) + middle).to(torch.uint8),
        groups_of,
    )


def _integers(
    module: StoredModule,
    group: Group,
    codes: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    groups_of: torch.Tensor | None,
) -> QuantizedTensor:
    size = group.scope.columns or None
    said = group.symmetric, groups_of is not None
    return integer_weight(module, codes, scales, zeros, group.bits, size, groups_of, said)


def _shape(module: StoredModule, words: torch.Tensor) -> tuple[int, int]:
    """(n, k) as stored."""
    module.tensor("weight_shape", _INTEGERS, (2,))
    n, k = module.files.numbers(module.path("weight_shape"))
    if n != words.shape[0] or not 1 <= k <= words.shape[1] * 32:
        raise module.fault(
            f"`weight_shape` must be that of `{PACKED}` {list(words.shape)}",
            f"[{n}, {k}]",
            "the file is damaged",
        )
    return n, k


def _is_dense(module: StoredModule, width: int, k: int, bits: int) -> bool:
    """Whether codes straddle words. The width says so; where both ways are as wide, which only
    narrow layers are, the version does."""
    dense, loose = words_for(k, bits), -(-k // (32 // bits))
    if width not in (dense, loose):
        raise module.fault(
            f"`{PACKED}` must be {dense} or {loose} words wide for k={k} and {bits} bits",
            width,
            "the config's num_bits is not that of the file",
        )
    if dense != loose:
        return width == dense
    version = str(module.source.values.get("version") or "").split(".")
    numbers = tuple(int(part) for part in version[:2] if part.isascii() and part.isdecimal())
    return len(numbers) < 2 or numbers >= _DENSE_SINCE


def _unpacked(words: torch.Tensor, bits: int, count: int, dense: bool) -> torch.Tensor:
    if dense or 32 % bits == 0:
        return from_words(words, bits, count)
    rows, width = words.shape
    each = 32 // bits
    single = words.contiguous().view(torch.uint8).view(rows * width, 4)
    return from_bytes(single, bits, each).reshape(rows, width * each)[:, :count]


def _groups_of(module: StoredModule) -> torch.Tensor | None:
    """`weight_g_idx`, but for one that was never set, which is of -1."""
    stored = module.optional("weight_g_idx", _INTEGERS, (None,))
    if stored is None or (not stored.is_meta and bool((stored == -1).any())):
        return None
    return stored


def _activation_scale(module: StoredModule, group: Group) -> torch.Tensor | None:
    if group.activation is None:
        return None
    if module.has("input_global_scale"):
        return inverse(one_number(module, "input_global_scale"))
    if not group.activation.endswith("t"):
        return None
    return one_number(module, "input_scale")


READER = Reader(
    title="compressed-tensors",
    methods=("compressed-tensors",),
    modules=having(PACKED, SCALE),
    read=read,
    formats=(
        "int4g128",
        "uint4g128z",
        "int8",
        "int8-int8",
        "int4-int8",
        "fp8e4m3t",
        "fp8e4m3",
        "fp8e4m3b128",
        "nvfp4",
        "mxfp4",
        "mxfp6e2m3",
        "mxfp8e4m3",
    ),
)
