"""torchao, where its tensor classes are written as plain tensors with JSON in the files' metadata.

    metadata "X.weight"   {"_type": class, "_data": {"block_size": [rows, columns], ..}}
    X._weight_qdata, X._weight_scale, X._weight_zero_point, X.bias

    Int8Tensor                 qdata int8 [n, k], scale [n / rows, k / columns]; w = (q - z) * s
    IntxUnpackedToInt8Tensor   the same, q of `target_dtype` bits; z int8 or float
    Float8Tensor               qdata fp8 [n, k], scale like the blocks, or one number
    Int4Tensor                 qdata uint8 [n, k / 2] of signed codes, low first; scale and zero
                               point [groups, n]; w = q * s + z
    Int4TilePackedTo4dTensor   qdata int32 [n / 8, k / 128, 32, 4], the tiles of an mma instruction;
                               scale_and_zero bf16 [groups, n, 2]; w = (q - 8) * s + z
    MXTensor                   qdata fp8, or uint8 [n, k / 2] of fp4, low first; scale e8m0
    NVFP4Tensor                qdata uint8 [n, k / 2], scale fp8 [n, k / 16], per_tensor_scale fp32

A sum with z becomes (q - zero_point) * s with zero_point = -z / s in fp32: within one rounding of
it. Scales in the order that an instruction wants ("swizzled") are put back. `act_pre_scale`, by
which x is multiplied, is refused, and so are files without this metadata.

Source: torchao, `prototype/safetensors/` and `quantization/quantize_/workflows/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from humming.checkpoints.config.source import Source
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import from_bytes
from humming.checkpoints.readers.torchao_int4 import (
    QDATA,
    SCALE,
    ZERO,
    Data,
    int4,
    int4_tiles,
    scope_of,
    with_float_zeros,
)
from humming.checkpoints.registry import Reader
from humming.checkpoints.scopes import FP8_NAMES, TENSOR, fp8_weight, signed_weight
from humming.checkpoints.small_floats import MX_BLOCK, NV_GROUP, e8m0, one_number
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.quantize.tensor import QuantizedTensor

_END = f".{QDATA}"


def modules(files: TensorFiles, source: Source) -> Iterable[str]:  # noqa: ARG001
    """Modules whose weight was one of torchao's tensors."""
    return [name.removesuffix(_END) for name in files.names if name.endswith(_END)]


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of a torchao checkpoint."""
    kind, data = _described(module)
    reader = _READERS.get(kind)
    if reader is None:
        raise module.fault(
            f"its weight must be one of {', '.join(_READERS)}", kind, "quantize it as one of these"
        )
    if module.has("_weight_act_pre_scale"):
        raise module.fault(
            "x must be used as it is", "act_pre_scale", "quantize the model without it"
        )
    weight = reader(module, data)
    n = weight.shape[0]
    return CheckpointLayer(
        module.name, weight, module.bias(n), _activation(data), dtype=module.dtype
    )


def _described(module: StoredModule) -> tuple[str, Data]:
    """The class of the weight, and its attributes."""
    text = module.files.metadata(module.path(QDATA)).get(module.path("weight"))
    try:
        found = json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        found = None
    data = found.get("_data") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(data, Mapping):
        raise module.fault(
            f"the file's metadata must describe `{module.path('weight')}`",
            "nothing that can be read" if text is None else "no JSON object",
            "save the model again with torchao",
        )
    return str(found.get("_type")), data


def _int8(module: StoredModule, data: Data) -> QuantizedTensor:
    return _integers(module, data, 8)


def _intx(module: StoredModule, data: Data) -> QuantizedTensor:
    name = str(_plain(data.get("target_dtype")))
    bits = int(name[3:]) if name.startswith("int") and name[3:].isdecimal() else 0
    if not 1 <= bits <= 8:
        raise module.fault("`target_dtype` must be int1 to int8", name, "the file is wrong")
    return _integers(module, data, bits)


def _integers(module: StoredModule, data: Data, bits: int) -> QuantizedTensor:
    codes = module.tensor(QDATA, (torch.int8,), (None, None))
    n, k = codes.shape
    scope = scope_of(module, data, n, k)
    zeros = module.optional(ZERO, (torch.int8, *FLOATS))
    symmetric = zeros is None or not any(module.files.numbers(module.path(ZERO)))
    if zeros is None or symmetric or zeros.dtype == torch.int8:
        zeros = None if symmetric else zeros
        return signed_weight(module, codes, module.scales(SCALE), scope, SCALE, bits, zeros)
    scales = scope.per_row(scope.laid(module, SCALE, module.scales(SCALE), n, k), n)
    floats = scope.per_row(scope.laid(module, ZERO, zeros, n, k), n)
    return with_float_zeros(module, codes, scales, floats, bits, scope)


def _float8(module: StoredModule, data: Data) -> QuantizedTensor:
    weight = module.tensor(QDATA, tuple(FP8_NAMES), (None, None))
    scales = module.scales(SCALE)
    scope = TENSOR if scales.numel() == 1 else scope_of(module, data, *weight.shape)
    return fp8_weight(module, weight, scales, scope, SCALE)


def _mx(module: StoredModule, data: Data) -> QuantizedTensor:
    if data.get("block_size") != MX_BLOCK:
        raise module.fault(
            f"`block_size` must be {MX_BLOCK}", data.get("block_size"), "quantize it anew"
        )
    kind = str(_plain(data.get("elem_dtype")))
    formats = {"float8_e4m3fn": "mxfp8e4m3", "float8_e5m2": "mxfp8e5m2"}
    if kind == "float4_e2m1fn_x2":
        packed = module.tensor(QDATA, (torch.uint8,), (None, None))
        codes, name = from_bytes(packed, 4, packed.shape[1] * 2), "mxfp4"
    elif kind in formats:
        codes = module.tensor(QDATA, tuple(FP8_NAMES), (None, None)).view(torch.uint8)
        name = formats[kind]
    else:
        raise module.fault("`elem_dtype` must be fp8 or fp4", kind, "quantize it anew")
    n, k = codes.shape
    exponents = module.tensor(SCALE, (torch.float8_e8m0fnu, torch.uint8)).view(torch.uint8)
    groups = -(-k // MX_BLOCK)
    laid = _laid(module, data, exponents, n, groups)
    return QuantizedTensor(name, codes.contiguous(), e8m0(module, laid, SCALE))


def _nvfp4(module: StoredModule, data: Data) -> QuantizedTensor:
    packed = module.tensor(QDATA, (torch.uint8,), (None, None))
    n, k = packed.shape[0], packed.shape[1] * 2
    stored = module.scales(SCALE, (torch.float8_e4m3fn,))
    fine = _laid(module, data, stored.view(torch.uint8), n, -(-k // NV_GROUP))
    whole = torch.ones(1)
    if module.has("_weight_per_tensor_scale"):
        whole = one_number(module, "_weight_per_tensor_scale")
    codes = from_bytes(packed, 4, k).contiguous()
    scales = fine.contiguous().view(torch.float8_e4m3fn)
    return module.checked(QuantizedTensor("nvfp4", codes, scales, global_scales=whole))


def _laid(
    module: StoredModule, data: Data, scales: torch.Tensor, n: int, groups: int
) -> torch.Tensor:
    """uint8 [n, groups], out of tiles of 128 rows by 4 groups where they are "swizzled": row r of a
    tile stands in line r % 32, four groups at (r // 32) * 4."""
    if not data.get("is_swizzled_scales"):
        if scales.numel() != n * groups:
            raise module.fault(
                f"`{SCALE}` must be [{n}, {groups}]", list(scales.shape), "it is not"
            )
        return scales.reshape(n, groups)
    high, wide = -(-n // 128), -(-groups // 4)
    if scales.numel() != high * wide * 512:
        raise module.fault(
            f"swizzled scales of [{n}, {groups}] must be {high * wide * 512}",
            list(scales.shape),
            "the file is wrong",
        )
    tiles = scales.reshape(high, wide, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(high * 128, wide * 4)[:n, :groups]


def _activation(data: Data) -> str | None:
    """int8 or fp8 per row where the weight says that x is quantized on the way."""
    if str(data.get("activation_quantization")) == "int8_asym_per_token":
        return None  # has a zero point, which no format of activations has
    given = data.get("act_quant_kwargs")
    if not isinstance(given, Mapping):
        return None
    kind, inner = str(given.get("_type")), given.get("_data")
    if not isinstance(inner, Mapping) or "PerRow" not in str(inner.get("granularity")):
        return None
    if kind == "QuantizeTensorToInt8Kwargs":
        return "int8" if _plain(inner.get("mapping_type")) == "SYMMETRIC" else None
    return "fp8e4m3" if kind == "QuantizeTensorToFloat8Kwargs" else None


def _plain(value: Any) -> Any:
    """The name of an enum or a dtype, which are written as objects."""
    return value.get("_data") if isinstance(value, Mapping) else value


_READERS: dict[str, Callable[[StoredModule, Data], QuantizedTensor]] = {
    "Int8Tensor": _int8,
    "IntxUnpackedToInt8Tensor": _intx,
    "Float8Tensor": _float8,
    "Int4Tensor": int4,
    "Int4TilePackedTo4dTensor": int4_tiles,
    "MXTensor": _mx,
    "NVFP4Tensor": _nvfp4,
}

READER = Reader(
    title="torchao",
    methods=("torchao",),
    modules=modules,
    read=read,
    formats=(
        "int8",
        "int4g32",
        "uint4g128zf",
        "fp8e4m3",
        "fp8e4m3t",
        "mxfp4",
        "mxfp8e4m3",
        "nvfp4",
    ),
)
