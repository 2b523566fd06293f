"""The fragment map `cuda_n16k64`: codes of 1 to 8 bits, 16-bit activations, for all CUDA kernels.

Rows of w are taken in tiles of 16, columns in tiles of 64; a tile of b-bit codes is 128 * b
contiguous bytes, a group of 128 columns two tiles, and a row tile's tiles follow each other. A code
is stored as an unsigned number: signed integers as code + 2^(b-1), floats as their bits. It is cut
into planes of w = 8, 4, 2 or 1 bits (`PLANES`), which follow each other in the tile; the first, the
widest, has the code's high bits.

    codes   int32 [ceil(n / 16), 2 * ceil(k / 128), 32 * b]
                a plane is [32 lanes][w words]; that of 8 bits is two such runs of four words, k
                steps 0 and 1, then 2 and 3. Lane 4g + t, g = 0 .. 7 and t = 0 .. 3, holds the A
                fragments of the tile's four m16n8k16 products: register i and half h of k step s
                are row g + 8 * (i % 2), column 16s + 2t + h + 8 * (i // 2). With e = 4s + i that
                code is at bits 16h + e * w % 16 .. of word e * w // 16; a plane of one bit, which
                is one word, has it at bit 16h + 8 * (s % 2) + 4 * (i // 2) + 2 * (s // 2) + i % 2
    scales  16 bits [ceil(n / 16), groups, 8, 2]
                the pair at [.., g] is the scales of rows g and g + 8: one 32-bit word. Groups are
                those of spec/layouts.py, padded so that 128 columns have whole ones

So each register wants its two halves at the same place of a word's two halves: a shift and a mask
give both. The registers of a step are Turing's m16n8k8 twice (i < 2, then i >= 2), and, a warp a
tile, those of wgmma m64k16. n is padded to 16 by code 0 and scale 0, k to 128. Bytes are
little-endian, as torch's tensors are.
"""

from __future__ import annotations

import torch

TILE_N, TILE_K, UNIT_K = 16, 64, 128
PLANES = {1: (1,), 2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 7: (4, 2, 1), 8: (8,)}
"""Widths of the planes of b-bit codes, the high bits first."""

_ELEMENTS_AT_ONCE = 1 << 26
# A column of a tile is 32 * s1 + 16 * s0 + 8 * ik + 2 * t + h; a row is 8 * irow + g.
_SPLIT = ("tile_n", "irow", "g", "tile_k", "s1", "s0", "ik", "t", "h")
_SIZES = {"irow": 2, "g": 8, "s1": 2, "s0": 2, "ik": 2, "t": 4, "h": 2}
_ORDERS = {
    8: ("tile_n", "tile_k", "s1", "g", "t", "s0", "ik", "h", "irow"),
    4: ("tile_n", "tile_k", "g", "t", "s1", "s0", "h", "ik"),
    2: ("tile_n", "tile_k", "g", "t", "s1", "h", "s0", "ik"),
    1: ("tile_n", "tile_k", "g", "t", "h", "s0", "ik", "s1"),
}
"""Dimensions of a plane of w bits from slow to fast; below 8 bits `irow` is inside the byte."""
_IN_BYTE = {8: (), 4: (), 2: ("ik",), 1: ("s1", "ik")}
"""Further dimensions inside a byte, the fastest first: each is twice as many bits up."""


def codes_shape(n: int, k: int, bits: int) -> tuple[int, ...]:
    """Shape of the packed codes."""
    return -(-n // TILE_N), -(-k // UNIT_K) * (UNIT_K // TILE_K), 32 * bits


def scales_shape(n: int, groups: int) -> tuple[int, ...]:
    """Shape of the packed scales."""
    return -(-n // TILE_N), groups, 8, 2


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes [n, k] (int8 of signed integers, else uint8) -> int32 [ceil(n / 16), .., 32 * bits]."""
    n, k = codes.shape
    tiles_n, tiles_k = -(-n // TILE_N), -(-k // UNIT_K) * (UNIT_K // TILE_K)
    packed = codes.new_empty((tiles_n, tiles_k, 128 * bits), dtype=torch.uint8)
    tiles = max(1, _ELEMENTS_AT_ONCE // max(1, tiles_k * TILE_K * TILE_N))
    for first in range(0, tiles_n, tiles):
        part = codes[first * TILE_N : (first + tiles) * TILE_N]
        rows = -part.shape[0] % TILE_N
        stored = torch.nn.functional.pad(part, (0, tiles_k * TILE_K - k, 0, rows))
        if codes.dtype == torch.int8:
            stored = stored + (1 << (bits - 1)) if bits < 8 else stored ^ -128
        target, shift, begin = packed[first : first + tiles], bits, 0
        for width in PLANES[bits]:
            shift -= width
            plane = _pack_plane(stored.view(torch.uint8) >> shift, width, tiles_k)
            target[:, :, begin : begin + 128 * width] = plane
            begin += 128 * width
    return packed.view(torch.int32)


def unpack_codes(
    packed: torch.Tensor, n: int, k: int, bits: int, signed: bool = True
) -> torch.Tensor:
    """The exact inverse of `pack_codes`: int8 where `signed`, else uint8."""
    tiles_n, tiles_k = packed.shape[:2]
    codes = packed.new_empty((n, k), dtype=torch.uint8)
    tiles = max(1, _ELEMENTS_AT_ONCE // max(1, tiles_k * TILE_K * TILE_N))
    for first in range(0, tiles_n, tiles):
        part = packed[first : first + tiles].contiguous().view(torch.uint8)
        whole, shift, begin = None, bits, 0
        for width in PLANES[bits]:
            shift -= width
            plane = _unpack_plane(part[:, :, begin : begin + 128 * width], width) << shift
            whole = plane if whole is None else whole | plane
            begin += 128 * width
        target = codes[first * TILE_N : (first + tiles) * TILE_N]
        assert whole is not None
        target.copy_(whole[: target.shape[0], :k])
    if not signed:
        return codes
    return (
        (codes ^ 128).view(torch.int8) if bits == 8 else codes.view(torch.int8) - (1 << (bits - 1))
    )


def pack_scales(scales: torch.Tensor, groups: int) -> torch.Tensor:
    """Scales or zero points [n, any] of 16 bits -> [ceil(n / 16), groups, 8, 2], padded by 0."""
    n, given = scales.shape
    padded = torch.nn.functional.pad(scales, (0, groups - given, 0, -n % TILE_N))
    return padded.view(-(-n // TILE_N), 2, 8, groups).permute(0, 3, 2, 1).contiguous()


def unpack_scales(packed: torch.Tensor, n: int, groups: int) -> torch.Tensor:
    """The exact inverse of `pack_scales`, of the type that they have."""
    tiles_n, stored = packed.shape[:2]
    rows = packed.permute(0, 3, 2, 1).reshape(tiles_n * TILE_N, stored)
    return rows[:n, :groups].contiguous()


def _pack_plane(fields: torch.Tensor, width: int, tiles_k: int) -> torch.Tensor:
    """Bytes [tiles_n, tiles_k, 128 * width] of the low `width` bits of uint8 fields [rows, k]."""
    mask = (1 << width) - 1
    names: tuple[str, ...] = _SPLIT
    split = fields.view(_shape(_SPLIT, -1, tiles_k))
    if width < 8:
        names = tuple(name for name in names if name != "irow")
        split = split[:, 0] & mask | (split[:, 1] & mask) << width
    lined = split.permute([names.index(name) for name in _ORDERS[width]])
    shift = 2 * width
    for _ in _IN_BYTE[width]:
        lined = lined[..., 0] | lined[..., 1] << shift
        shift *= 2
    return lined.reshape(-1, tiles_k, 128 * width)


def _unpack_plane(bytes_: torch.Tensor, width: int) -> torch.Tensor:
    """The inverse of `_pack_plane`: uint8 fields [rows, k]."""
    tiles_n, tiles_k = bytes_.shape[:2]
    order, inside = _ORDERS[width], _IN_BYTE[width]
    lined = bytes_.reshape(_shape(order[: len(order) - len(inside)], tiles_n, tiles_k))
    mask, shift = (1 << width) - 1, 2 * width << len(inside)
    for _ in inside:
        shift //= 2
        lined = torch.stack((lined & ((1 << shift) - 1), lined >> shift), -1)
    if width < 8:
        lined = torch.stack((lined & mask, lined >> width), -1)
        order = (*order, "irow")
    split = lined.permute([order.index(name) for name in _SPLIT])
    return split.reshape(tiles_n * TILE_N, tiles_k * TILE_K)


def _shape(names: tuple[str, ...], tiles_n: int, tiles_k: int) -> tuple[int, ...]:
    sizes = {**_SIZES, "tile_n": tiles_n, "tile_k": tiles_k}
    return tuple(sizes[name] for name in names)
