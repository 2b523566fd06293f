"""Weights of small floats with scales of blocks: mxfp4, mxfp6, mxfp8 and nvfp4 as public tools pack
them. Which tensors hold them is known to the readers.
"""

from __future__ import annotations

import torch

from humming.checkpoints.packing import from_bytes
from humming.checkpoints.scopes import check_fp8
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.quantize.tensor import QuantizedTensor

MX_BLOCK = 32
NV_GROUP = 16
_MX_BITS = {"mxfp4": 4, "mxfp6e2m3": 6, "mxfp6e3m2": 6}
_E8M0 = (torch.uint8, torch.float8_e8m0fnu)
_NAN = 255


def mx_weight(module: StoredModule, format: str, packed: str, scales: str) -> QuantizedTensor:
    """A weight of the tensors `packed`, uint8 [n, k * bits / 8], low bits first, or fp8 [n, k], and
    `scales`, e8m0 [n, k / 32] as such or as bytes.
    """
    if format in _MX_BITS:
        bits = _MX_BITS[format]
        stored = module.tensor(packed, (torch.uint8,), (None, None))
        k = stored.shape[1] * 8 // bits
        codes = from_bytes(stored, bits, k)
    else:
        kind = torch.float8_e4m3fn if format == "mxfp8e4m3" else torch.float8_e5m2
        weight = module.tensor(packed, (kind,), (None, None))
        check_fp8(module, weight)
        codes, k = weight.view(torch.uint8), weight.shape[1]
    shape = (codes.shape[0], -(-k // MX_BLOCK))
    exponents = module.tensor(scales, _E8M0, shape)
    return QuantizedTensor(format, codes.contiguous(), e8m0(module, exponents, scales))


def e8m0(module: StoredModule, exponents: torch.Tensor, what: str) -> torch.Tensor:
    """Bytes as exponents; CheckpointError where one is NaN."""
    stored = exponents.contiguous().view(torch.uint8)
    if not stored.is_meta and bool((stored == _NAN).any()):
        raise module.fault(f"`{what}` must be finite", f"{_NAN}, NaN", "the file is damaged")
    return stored.view(torch.float8_e8m0fnu)


def nvfp4_weight(
    module: StoredModule, packed: str, scales: str, global_scale: torch.Tensor
) -> QuantizedTensor:
    """A weight of the tensors `packed`, uint8 [n, k / 2], low nibble first, and `scales`, fp8
    [n, k / 16], under the fp32 `global_scale`, one number, that multiplies them.
    """
    stored = module.tensor(packed, (torch.uint8,), (None, None))
    n, k = stored.shape[0], stored.shape[1] * 2
    fine = module.scales(scales, (torch.float8_e4m3fn,), (n, -(-k // NV_GROUP)))
    weight = QuantizedTensor(
        "nvfp4",
        from_bytes(stored, 4, k).contiguous(),
        fine.contiguous(),
        global_scales=global_scale.to(torch.float32).reshape(1),
    )
    return module.checked(weight)


def one_number(module: StoredModule, suffix: str) -> torch.Tensor:
    """fp32 [1]: a tensor of a single number, which is above 0."""
    tensor = module.scales(suffix, FLOATS)
    if tensor.numel() != 1:
        raise module.fault(
            f"`{suffix}` must be one number", list(tensor.shape), "the file is wrong"
        )
    number = tensor.to(torch.float32).reshape(1)
    if not number.is_meta and not bool(number > 0):
        raise module.fault(f"`{suffix}` must be above 0", float(number), "the file is damaged")
    return number


def inverse(number: torch.Tensor) -> torch.Tensor:
    """1 / `number` in fp32: compressed-tensors stores what it divides by."""
    return (1.0 / number.to(torch.float64)).to(torch.float32)
