"""The fragment map: how codes and scales are laid out for a kernel family. Quantizing is tensor.py.

`cpu_n16k8` (4-bit signed codes, for all CPU kernels): rows of w are taken in panels of 16,
columns in steps of 8.

    codes   int32 [ceil(n / 16), k / 8, 16]    word [p, s, lane] holds row 16p + lane, columns
                                               8s .. 8s + 7; bits 4j .. 4j + 3 are the two's
                                               complement code of column 8s + j
    scales  fp32  [ceil(n / 16), groups, 16]   scale of row 16p + lane in group g

So one 64-byte line is one step of a panel, a panel's lines follow each other along k, and 16 lanes
are 16 output columns. Rows beyond n have zero codes and zero scales. Bytes are little-endian, as
torch's tensors are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from humming.errors import LayoutError
from humming.quantize.tensor import QuantizedTensor
from humming.spec.formats import QuantFormat

PANEL_ROWS = 16
STEP_COLUMNS = 8
K_MULTIPLE = 32
LAYOUTS = ("cpu_n16k8",)


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight in a kernel's layout: `codes` and `scales` as the fragment map says.

    `scale_dtype` is what the scales were before they were packed as fp32, which holds all three
    scale dtypes exactly.
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
        return PackedWeight(
            self.format, self.n, self.k, self.layout, codes, scales, self.scale_dtype
        )


def pack(q: QuantizedTensor, layout: str = "cpu_n16k8") -> PackedWeight:
    """`q` in `layout`. Raises LayoutError for an unknown layout or format, or `k % 32 != 0`."""
    n, k = q.shape
    _check(q.format, layout, k)
    if q.zero_points is not None or q.codes.dtype != torch.int8:
        raise LayoutError(
            f"layout '{layout}' holds int8 codes without zero points, "
            f"but got {q.codes.dtype} with zero_points={q.zero_points is not None}"
        )
    panels = -(-n // PANEL_ROWS)
    pad_rows = panels * PANEL_ROWS - n
    nibbles = torch.nn.functional.pad(q.codes.view(torch.uint8), (0, 0, 0, pad_rows)) & 0xF
    words = (nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).view(torch.int32)
    scales = torch.nn.functional.pad(q.scales.to(torch.float32), (0, 0, 0, pad_rows))
    return PackedWeight(
        q.format,
        n,
        k,
        layout,
        words.view(panels, PANEL_ROWS, k // STEP_COLUMNS).transpose(1, 2).contiguous(),
        scales.view(panels, PANEL_ROWS, -1).transpose(1, 2).contiguous(),
        q.scales.dtype,
    )


def unpack(p: PackedWeight) -> QuantizedTensor:
    """The exact inverse of `pack`: canonical codes, and scales in their own dtype."""
    _check(p.format, p.layout, p.k)
    rows = p.codes.shape[0] * PANEL_ROWS
    words = p.codes.transpose(1, 2).reshape(rows, p.k // STEP_COLUMNS)
    pairs = words[: p.n].contiguous().view(torch.uint8)
    nibbles = torch.stack((pairs & 0xF, pairs >> 4), dim=2).view(p.n, p.k)
    codes = (nibbles ^ 8).view(torch.int8) - 8  # sign extension of 4 bits
    scales = p.scales.transpose(1, 2).reshape(rows, -1)[: p.n].to(p.scale_dtype).contiguous()
    return QuantizedTensor(p.format, codes, scales)


def _check(format: str, layout: str, k: int) -> None:
    if layout not in LAYOUTS:
        raise LayoutError(f"layout must be one of {', '.join(LAYOUTS)}, but got '{layout}'")
    stored = QuantFormat.parse(format).weight.dtype
    if (stored.kind, stored.bits) != ("int", 4):
        raise LayoutError(
            f"layout '{layout}' holds signed 4-bit codes, but got format '{format}'; use int4g128"
        )
    if k % K_MULTIPLE or k < K_MULTIPLE:
        raise LayoutError(
            f"`k % {K_MULTIPLE} == 0` must hold, but got k={k}; "
            f"pad k to {max(1, -(-k // K_MULTIPLE)) * K_MULTIPLE}"
        )
