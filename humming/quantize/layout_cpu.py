"""The fragment map `cpu_n16k8`: 4-bit signed codes, for all CPU kernels. Other maps are beside it.

Rows of w are taken in panels of 16, columns in steps of 8.

    codes   int32 [ceil(n / 16), k / 8, 16]    word [p, s, lane] holds row 16p + lane, columns
                                               8s .. 8s + 7; bits 4j .. 4j + 3 are the two's
                                               complement code of column 8s + j
    scales  fp32  [ceil(n / 16), groups, 16]   scale of row 16p + lane in group g

So one 64-byte line is one step of a panel, a panel's lines follow each other along k, and 16 lanes
are 16 output columns. Rows beyond n have zero codes and zero scales. Bytes are little-endian, as
torch's tensors are.
"""

from __future__ import annotations

import torch

PANEL_ROWS = 16
STEP_COLUMNS = 8


def pack_codes(codes: torch.Tensor) -> torch.Tensor:
    """int8 codes -8..7 [n, k] -> int32 [ceil(n / 16), k / 8, 16]."""
    n, k = codes.shape
    nibbles = torch.nn.functional.pad(codes.view(torch.uint8), (0, 0, 0, -n % PANEL_ROWS)) & 0xF
    words = (nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).view(torch.int32)
    return words.view(-1, PANEL_ROWS, k // STEP_COLUMNS).transpose(1, 2).contiguous()


def unpack_codes(packed: torch.Tensor, n: int, k: int) -> torch.Tensor:
    """The exact inverse of `pack_codes`."""
    words = packed.transpose(1, 2).reshape(-1, k // STEP_COLUMNS)
    pairs = words[:n].contiguous().view(torch.uint8)
    nibbles = torch.stack((pairs & 0xF, pairs >> 4), dim=2).view(n, k)
    return (nibbles ^ 8).view(torch.int8) - 8  # sign extension of 4 bits


def pack_scales(scales: torch.Tensor) -> torch.Tensor:
    """Float scales [n, groups] -> fp32 [ceil(n / 16), groups, 16]; fp32 holds all three types."""
    n, groups = scales.shape
    padded = torch.nn.functional.pad(scales.to(torch.float32), (0, 0, 0, -n % PANEL_ROWS))
    return padded.view(-1, PANEL_ROWS, groups).transpose(1, 2).contiguous()


def unpack_scales(packed: torch.Tensor, n: int, dtype: torch.dtype) -> torch.Tensor:
    """The inverse of `pack_scales`, exact in the dtype that the scales had."""
    groups = packed.shape[1]
    return packed.transpose(1, 2).reshape(-1, groups)[:n].to(dtype).contiguous()
