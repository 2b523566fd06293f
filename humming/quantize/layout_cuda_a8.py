"""The fragment map `cuda_n16k64_a8`: codes for products in 8 bits, for all CUDA kernels whose x is
quantized. Products in 16 bits read layout_cuda.py's.

Codes of 8 bits lie as in the weight itself: bytes of rows, along k, padded by 0 to 16 rows and 128
columns; integers in two's complement. So what multiplies bytes from shared memory, ours or torch's,
takes them as they are.

Codes of 1 to 7 bits lie in tiles of 16 rows and 64 columns, 128 * b contiguous bytes, as unsigned
numbers in planes of 4, 2 and 1 bits, as in layout_cuda.py and padded as there.

    codes   int32 [16 * ceil(n / 16), 32 * ceil(k / 128)]               of 8 bits
            int32 [ceil(n / 16), 2 * ceil(k / 128), 32 * b]             of fewer
                a plane of w bits is [32 lanes][w words]. Lane 4g + t holds the A fragments of the
                tile's two m16n8k32 products: byte j of register i of k step u is row
                g + 8 * (i % 2), column 32u + 16 * (i // 2) + 4t + j. With
                e = 4u + 2 * (i % 2) + i // 2 it is in byte j of word e * w // 8, from bit
                e * w % 8 of the byte on
    scales  as in layout_cuda.py, or, of blocks, fp32 [ceil(n / 16), groups]

So one mask on all bytes of a word gives a register. Those of a row tile and k step are a fragment
of wgmma m64k32, a warp a tile; and a word of 4-bit codes, 8 neighbours of 32 columns of one row, is
a register of the m16n8k64 products of 4 bits.
"""

from __future__ import annotations

import torch

from humming.quantize import layout_cuda
from humming.quantize.layout_cuda import PLANES, TILE_K, TILE_N, UNIT_K

_ELEMENTS_AT_ONCE = 1 << 26
_ROW_TILE = (2, 8)  # irow, g
_K_TILE = (2, 2, 4, 4)  # u, ik, t, j
_TO_LANES = (0, 3, 2, 6, 4, 1, 5, 7)  # tile_n, tile_k, g, t, u, irow, ik, j
_FROM_LANES = (0, 5, 2, 1, 4, 6, 3, 7)  # and back

unpack_scales = layout_cuda.unpack_scales


def codes_shape(n: int, k: int, bits: int) -> tuple[int, ...]:
    """Shape of the packed codes."""
    tiles_n, units_k = -(-n // TILE_N), -(-k // UNIT_K)
    if bits == 8:
        return TILE_N * tiles_n, UNIT_K // 4 * units_k
    return tiles_n, UNIT_K // TILE_K * units_k, 32 * bits


def scales_shape(n: int, groups: int, of_tiles: bool = False) -> tuple[int, ...]:
    """Shape of the packed scales, or of those that 16 rows share."""
    return (-(-n // TILE_N), groups) if of_tiles else layout_cuda.scales_shape(n, groups)


def pack_scales(scales: torch.Tensor, groups: int) -> torch.Tensor:
    """Scales or zero points [n, any] of 16 bits as in layout_cuda.py; fp32 ones, of blocks of whole
    row tiles, -> [ceil(n / 16), groups], padded by 0."""
    if scales.dtype != torch.float32:
        return layout_cuda.pack_scales(scales, groups)
    of_tiles = scales[::TILE_N]
    return torch.nn.functional.pad(of_tiles, (0, groups - of_tiles.shape[1])).contiguous()


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes [n, k] (int8 of signed integers, else uint8) -> int32 of `codes_shape`."""
    n, k = codes.shape
    padded_n, padded_k = -(-n // TILE_N) * TILE_N, -(-k // UNIT_K) * UNIT_K
    if bits == 8:
        rows = codes.new_zeros((padded_n, padded_k), dtype=torch.uint8)
        rows[:n, :k] = codes.view(torch.uint8)
        return rows.view(torch.int32)
    tiles_n, tiles_k = padded_n // TILE_N, padded_k // TILE_K
    packed = codes.new_empty((tiles_n, tiles_k, 128 * bits), dtype=torch.uint8)
    tiles = max(1, _ELEMENTS_AT_ONCE // (padded_k * TILE_N))
    for first in range(0, tiles_n, tiles):
        part = codes[first * TILE_N : (first + tiles) * TILE_N]
        stored = torch.nn.functional.pad(part, (0, padded_k - k, 0, -part.shape[0] % TILE_N))
        if codes.dtype == torch.int8:
            stored = stored + (1 << (bits - 1))
        lanes = stored.view(torch.uint8).view(-1, *_ROW_TILE, tiles_k, *_K_TILE).permute(_TO_LANES)
        target, shift, begin = packed[first : first + tiles], bits, 0
        for width in PLANES[bits]:
            shift -= width
            plane = _bytes_of((lanes >> shift) & ((1 << width) - 1), width)
            target[:, :, begin : begin + 128 * width] = plane
            begin += 128 * width
    return packed.view(torch.int32)


def unpack_codes(
    packed: torch.Tensor, n: int, k: int, bits: int, signed: bool = True
) -> torch.Tensor:
    """The exact inverse of `pack_codes`: int8 where `signed`, else uint8."""
    if bits == 8:
        rows = packed.view(torch.uint8)[:n, :k].contiguous()
        return rows.view(torch.int8) if signed else rows
    tiles_n, tiles_k = packed.shape[:2]
    codes = packed.new_empty((n, k), dtype=torch.uint8)
    tiles = max(1, _ELEMENTS_AT_ONCE // (tiles_k * TILE_K * TILE_N))
    for first in range(0, tiles_n, tiles):
        part = packed[first : first + tiles].contiguous().view(torch.uint8)
        lanes, shift, begin = torch.zeros((), dtype=torch.uint8, device=packed.device), bits, 0
        for width in PLANES[bits]:
            shift -= width
            lanes = lanes | _fields_of(part[:, :, begin : begin + 128 * width], width) << shift
            begin += 128 * width
        whole = lanes.permute(_FROM_LANES).reshape(-1, tiles_k * TILE_K)
        target = codes[first * TILE_N : (first + tiles) * TILE_N]
        target.copy_(whole[: target.shape[0], :k])
    return codes.view(torch.int8) - (1 << (bits - 1)) if signed else codes


def _bytes_of(lanes: torch.Tensor, width: int) -> torch.Tensor:
    """Fields [tiles_n, tiles_k, g, t, u, irow, ik, j] -> bytes [tiles_n, tiles_k, 128 * width]."""
    of_byte = 8 // width
    fields = lanes.reshape(*lanes.shape[:4], width, of_byte, 4)
    found = fields[..., 0, :]
    for i in range(1, of_byte):
        found = found | fields[..., i, :] << (i * width)
    return found.flatten(2)


def _fields_of(plane: torch.Tensor, width: int) -> torch.Tensor:
    """The inverse of `_bytes_of`."""
    words = plane.reshape(*plane.shape[:2], 8, 4, width, 4)
    mask = (1 << width) - 1
    fields = [(words >> (i * width)) & mask for i in range(8 // width)]
    return torch.stack(fields, -2).reshape(*plane.shape[:2], 8, 4, 2, 2, 2, 4)
