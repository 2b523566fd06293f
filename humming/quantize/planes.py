"""Codes of any width as planes whose width is a power of two, and codes packed side by side along a
row. Where planes lie in a layout is layout_cpu.py and layout_cuda.py."""

from __future__ import annotations

import torch


def planes(bits: int) -> tuple[tuple[int, int], ...]:
    """(shift, width) of each plane of a code, widest first: the first plane has the highest bits.

    8 | 4+2+1 | 4+2 | 4+1 | 4 | 2+1 | 2 | 1 for 8 to 1 bits.
    """
    found, left = [], bits
    for width in (8, 4, 2, 1):
        if left >= width:
            left -= width
            found.append((left, width))
    return tuple(found)


def interleaved(raw: torch.Tensor, shift: int, width: int) -> torch.Tensor:
    """One plane of bit patterns uint8 [n, k]: uint8 [n, k * width / 8], `8 / width` codes a byte,
    the first column in the lowest bits. k is a multiple of `8 / width`."""
    if width == 8:
        return raw.contiguous()
    mask, codes_a_byte = (1 << width) - 1, 8 // width
    out = (raw[:, 0::codes_a_byte] >> shift) & mask
    for j in range(1, codes_a_byte):
        out |= ((raw[:, j::codes_a_byte] >> shift) & mask) << (j * width)
    return out.contiguous()


def separated(plane: torch.Tensor, width: int) -> torch.Tensor:
    """The inverse of `interleaved`, in the lowest bits: uint8 [n, k]."""
    if width == 8:
        return plane
    mask = (1 << width) - 1
    parts = [(plane >> (j * width)) & mask for j in range(8 // width)]
    return torch.stack(parts, dim=2).flatten(1)


def bit_packed(raw: torch.Tensor, bits: int) -> torch.Tensor:
    """Bit patterns uint8 [n, k] side by side: uint8 [n, ceil(k * bits / 8)], the first column in
    the lowest bits, each row padded with 0."""
    n, k = raw.shape
    if 8 % bits == 0:
        padded = torch.nn.functional.pad(raw, (0, -k % (8 // bits)))
        return interleaved(padded, 0, bits)
    eights = torch.nn.functional.pad(raw, (0, -k % 8)).view(n, -1, 8)
    word = torch.zeros(eights.shape[:2], dtype=torch.int64, device=raw.device)
    for j in range(8):
        word |= (eights[:, :, j] & ((1 << bits) - 1)).to(torch.int64) << (bits * j)
    stream = word.unsqueeze(2).view(torch.uint8)[:, :, :bits].reshape(n, -1)
    return stream[:, : -(-k * bits // 8)].contiguous()


def bit_unpacked(stream: torch.Tensor, bits: int, k: int) -> torch.Tensor:
    """The inverse of `bit_packed`: uint8 [n, k]."""
    n = stream.shape[0]
    if 8 % bits == 0:
        return separated(stream, bits)[:, :k].contiguous()
    groups = -(-k // 8)
    padded = torch.nn.functional.pad(stream, (0, groups * bits - stream.shape[1]))
    octets = torch.nn.functional.pad(padded.view(n, groups, bits), (0, 8 - bits)).contiguous()
    word = octets.view(torch.int64).squeeze(2)
    parts = [(word >> (bits * j) & ((1 << bits) - 1)).to(torch.uint8) for j in range(8)]
    return torch.stack(parts, dim=2).view(n, -1)[:, :k].contiguous()


def sign_extended(raw: torch.Tensor, bits: int) -> torch.Tensor:
    """int8 of two's complement bit patterns uint8 of `bits` bits."""
    if bits == 8:
        return raw.view(torch.int8)
    half = 1 << (bits - 1)
    return (raw ^ half).view(torch.int8) - half
