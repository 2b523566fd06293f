"""The fragment map `cpu_n16k8`: codes of 1 to 8 bits, for all CPU kernels. Others are beside it.

Rows of w are taken in panels of 16, columns in steps of 32, codes in planes of 8, 4, 2 or 1 bits
(planes.py), the first with a code's highest bits.

    codes   int32 [ceil(n / 16), ceil(k / 32), bits, 16]
                    a plane of w bits has w of the `bits` lines, in the order of the planes; word
                    [p, s, line, lane], `l` being the line within the plane, holds row 16p + lane,
                    columns 32s + 32l/w .. 32s + 32(l + 1)/w - 1, the first in the lowest bits;
                    signed integers are two's complement
    scales  fp32  [ceil(n / 16), groups, 16]   scale, or zero point, of row 16p + lane in group g

So a line is 64 bytes, a step of a panel is `bits` lines, a panel's steps follow each other along k,
and 16 lanes are 16 output columns. Rows beyond n and columns beyond k have code 0, rows beyond n
scale 0. Bytes are little-endian, as torch's tensors are.
"""

from __future__ import annotations

import torch

from humming.quantize.planes import interleaved, planes, separated, sign_extended

PANEL_ROWS = 16
STEP_COLUMNS = 32
_ELEMENTS_AT_ONCE = 1 << 22


def codes_shape(n: int, k: int, bits: int) -> tuple[int, ...]:
    """Shape of the packed codes."""
    return -(-n // PANEL_ROWS), -(-k // STEP_COLUMNS), bits, PANEL_ROWS


def scales_shape(n: int, groups: int) -> tuple[int, ...]:
    """Shape of the packed scales."""
    return -(-n // PANEL_ROWS), groups, PANEL_ROWS


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes [n, k] (int8 of signed integers, else uint8) -> int32 [.., bits, 16]."""
    n, k = codes.shape
    packed = torch.empty(codes_shape(n, k, bits), dtype=torch.int32, device=codes.device)
    panels = max(1, _ELEMENTS_AT_ONCE // (k * PANEL_ROWS))
    for panel in range(0, packed.shape[0], panels):
        part = codes[panel * PANEL_ROWS : (panel + panels) * PANEL_ROWS].view(torch.uint8)
        out = packed[panel : panel + panels]
        raw = torch.nn.functional.pad(part, (0, -k % STEP_COLUMNS, 0, -part.shape[0] % PANEL_ROWS))
        line = 0
        for shift, width in planes(bits):
            words = interleaved(raw, shift, width).view(torch.int32)
            split = words.view(-1, PANEL_ROWS, packed.shape[1], width)
            out[:, :, line : line + width] = split.permute(0, 2, 3, 1)
            line += width
    return packed


def unpack_codes(
    packed: torch.Tensor, n: int, k: int, bits: int, signed: bool = True
) -> torch.Tensor:
    """The exact inverse of `pack_codes`: int8 where `signed`, else uint8."""
    steps = packed.shape[1]
    rows = packed.permute(0, 3, 1, 2).reshape(-1, steps, bits)[:n]
    raw, line = torch.zeros((), dtype=torch.uint8, device=packed.device), 0
    for shift, width in planes(bits):
        words = packed.new_empty((n, steps, width)).copy_(rows[:, :, line : line + width])
        raw = raw | separated(words.view(n, -1).view(torch.uint8), width) << shift
        line += width
    raw = raw[:, :k].contiguous()
    return sign_extended(raw, bits) if signed else raw


def pack_scales(scales: torch.Tensor, groups: int) -> torch.Tensor:
    """Floats [n, groups or fewer] -> [ceil(n / 16), groups, 16] of the same type, padded by 0."""
    n, given = scales.shape
    padded = torch.nn.functional.pad(scales, (0, groups - given, 0, -n % PANEL_ROWS))
    return padded.view(-(-n // PANEL_ROWS), PANEL_ROWS, groups).transpose(1, 2).contiguous()


def unpack_scales(packed: torch.Tensor, n: int, groups: int) -> torch.Tensor:
    """The exact inverse of `pack_scales`: the first `groups` of n rows."""
    return packed.transpose(1, 2).reshape(-1, packed.shape[1])[:n, :groups].contiguous()
