"""torchao's weights of 4 bits with a float zero point that is added: plain, and in the tiles of an
mma instruction. Other classes, and how layers are told, are in torchao.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from humming.checkpoints.packing import from_bytes, signed
from humming.checkpoints.scopes import CHANNEL, TENSOR, Scope, signed_weight
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.quantize.tensor import QuantizedTensor

QDATA, SCALE, ZERO = "_weight_qdata", "_weight_scale", "_weight_zero_point"
Data = Mapping[str, Any]
_TILE_N, _TILE_K, _INNER, _LANES = 8, 16, 8, 32


def int4(module: StoredModule, data: Data) -> QuantizedTensor:
    """An Int4Tensor."""
    packed = module.tensor(QDATA, (torch.uint8, torch.int8), (None, None)).view(torch.uint8)
    n, k = packed.shape[0], packed.shape[1] * 2
    codes = signed(from_bytes(packed, 4, k) ^ 8, 4)
    scope = scope_of(module, data, n, k)
    shape = scope.shape(n, k)[::-1]
    scales, added = module.scales(SCALE, shape=shape).t(), module.scales(ZERO, shape=shape).t()
    if added.is_meta or bool(added.any()):
        return _sum(module, codes, scales, added, scope)
    return signed_weight(module, codes, scales, scope, SCALE, 4)


def int4_tiles(module: StoredModule, data: Data) -> QuantizedTensor:
    """An Int4TilePackedTo4dTensor, without its padding."""
    shape = data.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(s) is int for s in shape):
        raise module.fault("`shape` must be [n, k]", shape, "the file's metadata is wrong")
    n, k = shape
    stored = module.tensor(QDATA, (torch.int32,), (None, None, _LANES, _INNER // 2))
    if stored.shape[0] * _TILE_N < n or stored.shape[1] * _TILE_K * _INNER < k or min(n, k) < 1:
        raise module.fault(f"tiles must hold [{n}, {k}]", list(stored.shape), "the file is wrong")
    scope = scope_of(module, data, n, k)
    both = module.scales("_weight_scale_and_zero", FLOATS, (None, None, 2))
    groups = scope.shape(n, k)[1]
    if both.shape[0] < groups or both.shape[1] < n:
        raise module.fault(f"scales must be [{groups}, {n}, 2]", list(both.shape), "it is wrong")
    scales, added = both[:groups, :n].permute(2, 1, 0)
    codes = signed(_from_tiles(stored)[:n, :k], 4)
    return _sum(module, codes, scales, added, scope)


def _from_tiles(stored: torch.Tensor) -> torch.Tensor:
    """uint8 [n, k] of int32 [n / 8, k / 128, 32, 4]: lane l of the tile holds row l // 4; a word
    is two steps of 16 columns, of which the lane has (l % 4) * 2 + {0, 1, 8, 9}, its nibbles
    0 to 7 in the order 0 4 1 5 2 6 3 7."""
    tiles_n, tiles_k, _, words = stored.shape
    nibbles = from_bytes(stored.contiguous().view(torch.uint8).view(-1, 4), 4, 8)
    values = nibbles[:, [0, 4, 1, 5, 2, 6, 3, 7]]
    parts = values.view(tiles_n, tiles_k, _TILE_N, 4, words, 2, 2, 2)
    # row of 8, lane of 4, word, step, half (0 or 8), column of 2
    whole = parts.permute(0, 2, 1, 4, 5, 6, 3, 7)
    return whole.reshape(tiles_n * _TILE_N, tiles_k * words * 2 * _TILE_K)


def _sum(
    module: StoredModule,
    codes: torch.Tensor,
    scales: torch.Tensor,
    added: torch.Tensor,
    scope: Scope,
) -> QuantizedTensor:
    """q * s + z as (q - zero_point) * s."""
    if not scales.is_meta and bool((scales == 0).any()):
        raise module.fault("scales must not be 0", "0", "the file is damaged")
    zeros = -added.to(torch.float64) / scales.to(torch.float64)
    return with_float_zeros(module, codes, scales.contiguous(), zeros, 4, scope)


def with_float_zeros(
    module: StoredModule,
    codes: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    bits: int,
    scope: Scope,
) -> QuantizedTensor:
    """Signed `codes` less float `zeros`, both moved to the unsigned range and rounded once."""
    middle = 1 << (bits - 1)
    unsigned = (codes.to(torch.int16) + middle).to(torch.uint8)
    moved = (zeros.to(torch.float64) + middle).to(torch.float32)
    name = f"uint{bits}{scope.of_integers()}zf"
    return module.checked(QuantizedTensor(name, unsigned, scales, moved))


def scope_of(module: StoredModule, data: Data, n: int, k: int) -> Scope:
    """`block_size` [rows, columns] of a weight [n, k]; whole rows and columns are 0."""
    block = data.get("block_size")
    if block == [] or block is None:
        return TENSOR
    sound = isinstance(block, list) and len(block) == 2 and all(type(side) is int for side in block)
    if not sound or min(block) < 1:
        raise module.fault(
            "`block_size` must be [rows, columns]", block, "the file's metadata is wrong"
        )
    rows, columns = block
    if columns >= k:
        return TENSOR if rows >= n > 1 else CHANNEL if rows == 1 else Scope(rows, 0)
    return Scope(0 if rows >= n > 1 else rows, columns)
