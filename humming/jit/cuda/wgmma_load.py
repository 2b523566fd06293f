"""The kernel of the family wgmma: what a call needs and enqueues.

Tensor maps are tensor_map.py beside this; other families are load.py.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any

import torch

from humming.errors import LaunchError
from humming.jit.cache import CompiledKernel
from humming.jit.cuda.counters import zero_words
from humming.jit.cuda.driver import INT, LONG, POINTER, DeviceFunction
from humming.jit.cuda.kernel import ALIGNMENT, CudaKernel, config_of, launched_before
from humming.jit.cuda.tensor_map import (
    INT32,
    NO_SWIZZLE,
    SWIZZLE_128,
    UINT16,
    TensorMap,
    tensor_map,
)
from humming.jit.load import PackedOperand
from humming.spec.config import WgmmaConfig
from humming.spec.legality import (
    WgmmaDeal,
    wgmma_block_rows,
    wgmma_deal,
    wgmma_staged_rows,
    wgmma_threads,
)

_STAGE_K = 64
_MOST_MAPS = 256


class WgmmaKernel(CudaKernel):
    """A kernel of the family wgmma.

    The workspace holds partial sums of blocks that share a tile's k, where there are any.
    """

    name = "humming_wgmma"
    takes_permutation = True
    _TYPES = (None, None, None, *(POINTER,) * 7, *(INT,) * 5, LONG, INT)

    def __init__(self, compiled: CompiledKernel) -> None:
        super().__init__(compiled)
        config: WgmmaConfig = config_of(compiled, WgmmaConfig)
        self._config = config
        self._threads = wgmma_threads(config)
        self._sm_counts: dict[int, int] = {}
        self._row_maps: OrderedDict[tuple[int, ...], TensorMap] = OrderedDict()
        self._code_maps: dict[int, tuple[weakref.ref[torch.Tensor], int, TensorMap]] = {}

    def scratch_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:  # noqa: ARG002
        """A partial tile of fp32 for each block and run along k."""
        counts = self._sm_counts.values() or [_sm_count(torch.cuda.current_device())]
        return max(self._partial_bytes(wgmma_deal(self._config, m, n, k, sms)) for sms in counts)

    def _partial_bytes(self, dealt: WgmmaDeal) -> int:
        config = self._config
        tile = config.block_m * wgmma_block_rows(config) * 4
        return dealt.runs * config.cluster_n * tile

    def _load_on(self, index: int) -> DeviceFunction:
        self._sm_counts[index] = _sm_count(index)
        return super()._load_on(index)

    def _enqueue(
        self,
        function: DeviceFunction,
        x: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None,
    ) -> None:
        m, n, k, index = x.shape[0], packed.n, packed.k, function.index
        config = self._config
        if -(-k // 128) < config.split_k:  # a block without columns would be waited for
            raise LaunchError(
                f"a kernel of split_k={config.split_k} needs k > {128 * (config.split_k - 1)}, but "
                f"got k={k}; compile a config that is legal for it"
            )
        cluster = config.cluster_n * config.split_k
        dealt = wgmma_deal(config, m, n, k, self._sm_counts[index])
        partials, counters = 0, 0
        if dealt.runs:
            room = self._room(x, workspace, self._partial_bytes(dealt))
            tiles = dealt.streamed * config.cluster_n
            words = zero_words(tiles * config.warpgroups, index)
            partials, counters = room.data_ptr(), words.data_ptr()
        if packed.permutation is not None:
            x = x.index_select(1, packed.permutation)
        x = _aligned(x)
        if bias is not None:
            bias = bias.to(torch.float32).contiguous()
        x_map = self._x_map(x)
        mapped = config.num_stores > 1 and _is_even(out)
        values = (
            x_map,
            self._codes_map(packed),
            self._out_map(out) if mapped else x_map,
            packed.scales.data_ptr(),
            _address(packed.zero_points),
            _address(packed.row_scales),
            _address(bias),
            out.data_ptr(),
            partials,
            counters,
            m,
            n,
            k,
            dealt.whole,
            dealt.runs,
            out.stride(0) if m > 1 else n,
            int(mapped),
        )
        function.launch(
            (1, dealt.clusters * cluster),
            self._threads,
            values,
            self._TYPES,
            cluster=cluster,
            dependent=bool(config.dependent_launch) and launched_before(packed.codes),
        )

    def _x_map(self, x: torch.Tensor) -> TensorMap:
        box_rows = self._config.block_m // self._config.cluster_n
        return self._row_map(x, (box_rows, _STAGE_K))

    def _out_map(self, out: torch.Tensor) -> TensorMap:
        return self._row_map(out, (wgmma_staged_rows(self._config), 64))

    def _row_map(self, rows: torch.Tensor, box: tuple[int, int]) -> TensorMap:
        """The map of x or out, encoded once for an address and a shape: serving repeats both."""
        m, columns = rows.shape
        row = rows.stride(0) * 2 if m > 1 else -(-columns // 8) * 16
        key = (rows.data_ptr(), m, columns, row, *box)
        found = self._row_maps.get(key)
        if found is None:
            found = tensor_map(key[0], UINT16, (m, columns), row, box, SWIZZLE_128)
            self._row_maps[key] = found
            if len(self._row_maps) > _MOST_MAPS:
                self._row_maps.popitem(last=False)
        return found

    def _codes_map(self, packed: PackedOperand) -> TensorMap:
        """The map of packed codes, row tiles by words, encoded once for a weight."""
        codes = packed.codes
        address, found = codes.data_ptr(), self._code_maps.get(id(codes))
        if found is not None and found[0]() is codes and found[1] == address:
            return found[2]
        row_tiles = codes.shape[0]
        words = codes.numel() // row_tiles
        bits = int(self.compiled.source.static["code_bits"])
        box = (wgmma_block_rows(self._config) // 16, 16 * _STAGE_K * bits // 32)
        made = tensor_map(address, INT32, (row_tiles, words), words * 4, box, NO_SWIZZLE)
        key, maps = id(codes), self._code_maps
        maps[key] = (weakref.ref(codes, lambda _: maps.pop(key, None)), address, made)
        return made


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """x, or a copy of it whose rows begin at multiples of 16 bytes, as tensor maps want them."""
    m, k = x.shape
    if _is_even(x):
        return x
    return x.new_empty((m, -(-k // 8) * 8))[:, :k].copy_(x)


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _is_even(rows: torch.Tensor) -> bool:
    """Whether rows follow each other at multiples of 16 bytes."""
    stride = rows.stride(0)
    whole = stride >= rows.shape[1] and stride % 8 == 0
    return rows.data_ptr() % ALIGNMENT == 0 and (rows.shape[0] == 1 or whole)


def _sm_count(index: int) -> int:
    properties: Any = torch.cuda.get_device_properties(index)
    return int(properties.multi_processor_count)
