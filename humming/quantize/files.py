"""A QuantizedTensor as a safetensors file, and back. Checkpoints of others are checkpoints/; what a
layer writes is its state_dict."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from humming.errors import LayoutError
from humming.quantize.planes import bit_packed, bit_unpacked, sign_extended
from humming.quantize.tensor import QuantizedTensor, describe
from humming.spec.formats import QuantFormat

_FORMAT, _K = "humming.format", "humming.k"


def save(q: QuantizedTensor, path: str | Path) -> None:
    """Writes `q` with its codes side by side, as a state_dict has them; format and k are in the
    file's metadata."""
    tensors = {name: tensor.contiguous().cpu() for name, tensor in q.tensors.items()}
    raw = tensors["codes"].view(torch.uint8)
    tensors["codes"] = bit_packed(raw, q.weight_format.dtype.bits)
    save_file(tensors, path, {_FORMAT: q.format, _K: str(q.shape[1])})


def load(path: str | Path) -> QuantizedTensor:
    """What `save` wrote, checked. Raises LayoutError where the file is another, or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            found = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise LayoutError(
            f"{path} must be a safetensors file, but cannot be read: {error}"
        ) from error
    if {_FORMAT, _K} - found.keys() or not found[_K].isdecimal() or "codes" not in tensors:
        raise LayoutError(
            f"{path} must be written by humming.quantize.files.save, but names no format and k; "
            "read a checkpoint with HummingLinear.from_checkpoint"
        )
    unknown = tensors.keys() - {field.name for field in fields(QuantizedTensor)}
    if unknown or "scales" not in tensors:
        raise LayoutError(
            f"{path} must hold the tensors of a QuantizedTensor, but has {', '.join(tensors)}; "
            "write it anew"
        )
    codes = canonical(tensors.pop("codes"), found[_FORMAT], int(found[_K]))
    weight = QuantizedTensor(found[_FORMAT], codes, **tensors)
    weight.check_numbers()
    return weight


def canonical(stored: torch.Tensor, format: str, k: int) -> torch.Tensor:
    """Codes [n, k], one a byte, of codes side by side [n, ceil(k * bits / 8)]. Raises LayoutError
    on another shape or type."""
    kind = QuantFormat.parse(format).weight.dtype
    row_bytes = -(-k * kind.bits // 8)
    if stored.ndim != 2 or stored.shape[1] != row_bytes or stored.dtype != torch.uint8:
        raise LayoutError(
            f"codes must be uint8 [n, {row_bytes}], {kind.bits} bits each, but got "
            f"{describe(stored)}; give those of a weight of this k and format"
        )
    raw = bit_unpacked(stored, kind.bits, k)
    return sign_extended(raw, kind.bits) if kind.kind == "int" else raw
