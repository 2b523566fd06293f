"""Codes out of the words and bytes that tools pack them in. Which tool packs how is known to its
reader.

Nearly all tools write a row of codes as one stream of bits, low bits first, cut into little-endian
words; a code may straddle two words (3 bits).
"""

from __future__ import annotations

import torch


def from_words(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """uint8 [rows, count] of `bits` bits each, from integers [rows, words] of any width."""
    # One row or column is contiguous whatever its strides are, but then not viewed as bytes.
    flat = words.contiguous().reshape(-1).view(torch.uint8)
    return from_bytes(flat.view(words.shape[0], -1), bits, count)


def from_bytes(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """uint8 [rows, count] of `bits` bits each, from uint8 [rows, bytes], low bits first."""
    rows, width = packed.shape
    if packed.is_meta:  # a model may have many thousands of layers, and torch takes long for these
        return packed.new_empty((rows, min(count, width * 8 // bits)))
    if bits == 8:
        return packed[:, :count]
    mask = (1 << bits) - 1
    if 8 % bits == 0:
        steps = range(0, 8, bits)
        codes = torch.stack([(packed >> step) & mask for step in steps], dim=2)
        return codes.view(rows, width * len(steps))[:, :count]
    run = 4 if bits == 6 else 8  # so many codes end where a byte does
    each = run * bits // 8
    wide = torch.int32 if each < 4 else torch.int64
    runs = torch.nn.functional.pad(packed, (0, -width % each)).view(rows, -1, each).to(wide)
    joined = sum((runs[:, :, byte] << (8 * byte) for byte in range(1, each)), runs[:, :, 0])
    out = packed.new_empty((rows, joined.shape[1], run))
    for at in range(run):
        out[:, :, at] = (joined >> (bits * at)) & mask
    return out.view(rows, -1)[:, :count]


def words_for(count: int, bits: int, word_bits: int = 32) -> int:
    """How many words hold `count` codes."""
    return -(-count * bits // word_bits)


def signed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """int8: uint8 `codes` less 2^(bits-1), as symmetric unsigned codes mean them."""
    return (codes - (1 << (bits - 1))).view(torch.int8)  # modulo 256, which two's complement is


def nibbles_high_first(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [.., 2 w] from uint8 [.., w], two codes a byte, the high one first."""
    pairs = torch.stack((packed >> 4, packed & 0xF), dim=-1)
    return pairs.view(*packed.shape[:-1], 2 * packed.shape[-1])
