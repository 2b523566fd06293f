"""PackedWeight: a weight in the layout that a device's kernels read, there and back.

What lies where is a module a layout, layout_cpu.py and layout_cuda.py; for which devices and sizes
each is made is spec/layouts.py. Quantizing is tensor.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from humming.errors import LayoutError
from humming.quantize import layout_cpu, layout_cuda
from humming.quantize.tensor import QuantizedTensor
from humming.spec.dtypes import dtype
from humming.spec.formats import QuantFormat
from humming.spec.layouts import CPU_LAYOUT, CUDA_LAYOUT, LAYOUTS

K_MULTIPLE = LAYOUTS[CPU_LAYOUT].k_multiple


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight in a kernel's layout: `codes` and `scales` as its fragment map says.

    `scale_dtype` is what the scales were before they were packed, maybe as a wider type that holds
    them exactly.
    """

    format: str
    n: int
    k: int
    layout: str
    codes: torch.Tensor
    scales: torch.Tensor
    scale_dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes that a kernel reads once per call: codes and scales."""
        return self.codes.nbytes + self.scales.nbytes

    def to(self, device: torch.device | str) -> PackedWeight:
        """The same weight on `device`, in the same layout."""
        codes, scales = self.codes.to(device), self.scales.to(device)
        _settle(codes)
        return PackedWeight(
            self.format, self.n, self.k, self.layout, codes, scales, self.scale_dtype
        )


@dataclass(frozen=True)
class _Map:
    """The functions of one fragment map."""

    pack_codes: Callable[[torch.Tensor], torch.Tensor]
    unpack_codes: Callable[[torch.Tensor, int, int], torch.Tensor]
    pack_scales: Callable[[torch.Tensor], torch.Tensor]
    unpack_scales: Callable[[torch.Tensor, int, torch.dtype], torch.Tensor]


_MAPS = {
    name: _Map(module.pack_codes, module.unpack_codes, module.pack_scales, module.unpack_scales)
    for name, module in ((CPU_LAYOUT, layout_cpu), (CUDA_LAYOUT, layout_cuda))
}


def pack(q: QuantizedTensor, layout: str = CPU_LAYOUT) -> PackedWeight:
    """`q` in `layout`, on q's own device; CPU and CUDA tensors give the same bits.

    Raises LayoutError for an unknown layout, or a format, k or scale dtype that it does not hold.
    """
    n, k = q.shape
    _check(q.format, layout, k)
    if q.zero_points is not None or q.codes.dtype != torch.int8:
        raise LayoutError(
            f"layout '{layout}' holds int8 codes without zero points, "
            f"but got {q.codes.dtype} with zero_points={q.zero_points is not None}"
        )
    _check_scales(layout, q.scales.dtype)
    with torch.no_grad():
        codes, scales = _MAPS[layout].pack_codes(q.codes), _MAPS[layout].pack_scales(q.scales)
    _settle(codes)
    return PackedWeight(q.format, n, k, layout, codes, scales, q.scales.dtype)


def unpack(p: PackedWeight) -> QuantizedTensor:
    """The exact inverse of `pack`: canonical codes, and scales in their own dtype."""
    _check(p.format, p.layout, p.k)
    of = _MAPS[p.layout]
    return QuantizedTensor(
        p.format, of.unpack_codes(p.codes, p.n, p.k), of.unpack_scales(p.scales, p.n, p.scale_dtype)
    )


def _check(format: str, layout: str, k: int) -> None:
    if layout not in LAYOUTS:
        raise LayoutError(f"layout must be one of {', '.join(LAYOUTS)}, but got '{layout}'")
    stored = QuantFormat.parse(format).weight.dtype
    if (stored.kind, stored.bits) != ("int", 4):
        raise LayoutError(
            f"layout '{layout}' holds signed 4-bit codes, but got format '{format}'; use int4g128"
        )
    multiple = LAYOUTS[layout].k_multiple
    if k % multiple or k < multiple:
        raise LayoutError(
            f"`k % {multiple} == 0` must hold, but got k={k}; "
            f"pad k to {max(1, -(-k // multiple)) * multiple}"
        )


def _check_scales(layout: str, scale_dtype: torch.dtype) -> None:
    legal = LAYOUTS[layout].scale_dtypes
    if str(scale_dtype).removeprefix("torch.") not in [dtype(name).torch_name for name in legal]:
        raise LayoutError(
            f"layout '{layout}' holds {' or '.join(legal)} scales, those of the activations, but "
            f"got {scale_dtype}; convert the scales, or quantize a weight of that type"
        )


def _settle(codes: torch.Tensor) -> None:
    """Waits until a weight is written: kernels may read weights before their turn in the stream."""
    if codes.is_cuda and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream(codes.device).synchronize()
