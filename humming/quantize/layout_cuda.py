"""The fragment map `cuda_n16k64`: 4-bit signed codes, 16-bit activations, for all CUDA kernels.

Rows of w are taken in tiles of 16, columns in tiles of 64; lane 4g + t of a warp, g = 0 .. 7 and
t = 0 .. 3, reads 16 contiguous bytes of each tile.

    codes   int32 [ceil(n / 16), 2 * ceil(k / 128), 32, 4]
                        word [.., lane, step] holds the A fragment of one m16n8k16 product, k step
                        `step` of the tile: bits 4 * (i + 4h) of it, register i and half h, are
                        code + 8 of row g + 8 * (i % 2), column 16 * step + 2t + h + 8 * (i // 2)
    scales  16 bits [ceil(n / 16), ceil(k / 128), 8, 2]
                        the pair at [.., g] is the scales of rows g and g + 8: one 32-bit word

A tile is 512 contiguous bytes, a group of k two tiles, and a row tile's groups follow each other.
The same registers feed wgmma m64k16, a warp a tile. n is padded to 16 and k to 128 by code 0 and
scale 0. Bytes are little-endian, as torch's tensors are.
"""

from __future__ import annotations

import torch

TILE_N, TILE_K, GROUP = 16, 64, 128
# A row of a tile is 8 * i_row + g, a column 16 * step + 8 * i_k + 2 * t + h.
_SPLIT = ("tile_n", "i_row", "g", "tile_k", "step", "i_k", "t", "h")
_SIZES = {"i_row": 2, "g": 8, "step": 4, "i_k": 2, "t": 4, "h": 2}
_PACKED = ("tile_n", "tile_k", "g", "t", "step", "h", "i_k", "i_row")  # the last 3: which nibble
_TO_PACKED = tuple(_SPLIT.index(name) for name in _PACKED)
_TO_SPLIT = tuple(_PACKED.index(name) for name in _SPLIT)


def pack_codes(codes: torch.Tensor) -> torch.Tensor:
    """int8 codes -8..7 [n, k] -> int32 [ceil(n / 16), 2 * ceil(k / 128), 32, 4]."""
    n, k = codes.shape
    padded = torch.nn.functional.pad(codes, (0, -k % GROUP, 0, -n % TILE_N))
    tiles_n, tiles_k = padded.shape[0] // TILE_N, padded.shape[1] // TILE_K
    split = (padded + 8).view(torch.uint8).view(_shape(_SPLIT, tiles_n, tiles_k))
    nibbles = split.permute(_TO_PACKED).reshape(tiles_n, tiles_k, 32, 4, 4, 2)
    pairs = nibbles[..., 0] | nibbles[..., 1] << 4  # two a byte, low first
    return pairs.contiguous().view(torch.int32).squeeze(-1)


def unpack_codes(packed: torch.Tensor, n: int, k: int) -> torch.Tensor:
    """The exact inverse of `pack_codes`."""
    tiles_n, tiles_k = packed.shape[:2]
    pairs = packed.contiguous().view(torch.uint8).unsqueeze(-1)
    nibbles = torch.cat((pairs & 15, pairs >> 4), -1)
    split = nibbles.reshape(_shape(_PACKED, tiles_n, tiles_k)).permute(_TO_SPLIT)
    padded = split.reshape(tiles_n * TILE_N, tiles_k * TILE_K)
    return padded[:n, :k].contiguous().view(torch.int8) - 8


def pack_scales(scales: torch.Tensor) -> torch.Tensor:
    """16-bit scales [n, groups] -> [ceil(n / 16), groups, 8, 2], of the same type."""
    n, groups = scales.shape
    padded = torch.nn.functional.pad(scales, (0, 0, 0, -n % TILE_N))
    return padded.view(-1, 2, 8, groups).permute(0, 3, 2, 1).contiguous()


def unpack_scales(packed: torch.Tensor, n: int, dtype: torch.dtype) -> torch.Tensor:
    """The exact inverse of `pack_scales`; `dtype` is the type that they have."""
    tiles_n, groups = packed.shape[:2]
    rows = packed.permute(0, 3, 2, 1).reshape(tiles_n * TILE_N, groups)
    return rows[:n].to(dtype).contiguous()


def _shape(names: tuple[str, ...], tiles_n: int, tiles_k: int) -> tuple[int, ...]:
    sizes = {**_SIZES, "tile_n": tiles_n, "tile_k": tiles_k}
    return tuple(sizes[name] for name in names)
