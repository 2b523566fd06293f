"""The kernel of the family wgmma8: what a call needs and enqueues.

Quantizing x is kernel.py's, tensor maps are tensor_map.py beside this.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from humming.errors import LayoutError
from humming.jit.cache import CompiledKernel
from humming.jit.cuda.counters import zero_words
from humming.jit.cuda.driver import INT, LONG, POINTER, DeviceFunction
from humming.jit.cuda.kernel import CudaKernel, config_of, launched_before
from humming.jit.cuda.tensor_map import (
    FLOAT32,
    INT32,
    NO_SWIZZLE,
    SWIZZLE_128,
    UINT8,
    TensorMap,
    tensor_map,
)
from humming.jit.load import PackedOperand
from humming.spec.config import Wgmma8Config
from humming.spec.legality import WgmmaDeal, wgmma_block_rows, wgmma_deal, wgmma_threads

_UNIT_K, _STEP_K = 128, 32
_MOST_MAPS = 512


class Wgmma8Kernel(CudaKernel):
    """A kernel of the family wgmma8, which takes codes of x.

    The scratch memory holds partial sums of blocks that share a tile's k, where there are any.
    """

    name = "humming_wgmma8"
    _TYPES = (None, None, None, *(POINTER,) * 7, *(INT,) * 5, LONG)

    def __init__(self, compiled: CompiledKernel) -> None:
        super().__init__(compiled)
        config: Wgmma8Config = config_of(compiled, Wgmma8Config)
        self._config = config
        self._threads = wgmma_threads(config)
        self._code_bits = int(compiled.source.static["code_bits"])
        self._grouped_x = bool(compiled.source.static["x_group_size"])
        self._scaled_codes = compiled.source.static["packed_group_size"] == _STEP_K
        self._sm_counts: dict[int, int] = {}
        self._maps: OrderedDict[tuple[object, ...], TensorMap] = OrderedDict()
        self._weight_maps: dict[int, tuple[weakref.ref[torch.Tensor], int, TensorMap]] = {}

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

    def _enqueue_codes(
        self,
        function: DeviceFunction,
        codes: torch.Tensor,
        scales: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None,
    ) -> None:
        m, n, k, index, config = out.shape[0], packed.n, packed.k, function.index, self._config
        if -(-k // _UNIT_K) < config.split_k:  # a block without columns would be waited for
            raise LayoutError(
                f"a kernel of split_k={config.split_k} needs k > {_UNIT_K * (config.split_k - 1)}, "
                f"but got k={k}"
            )
        cluster = config.cluster_n * config.split_k
        dealt = wgmma_deal(config, m, n, k, self._sm_counts[index])
        partials, counters = 0, 0
        if dealt.runs:
            scratch = self._room(out, workspace, self._partial_bytes(dealt))
            words = zero_words(dealt.streamed * config.cluster_n * config.warpgroups, index)
            partials, counters = scratch.data_ptr(), words.data_ptr()
        if bias is not None:
            bias = bias.to(torch.float32).contiguous()
        of_x = of_scales = self._x_map(codes)
        if self._grouped_x:
            of_scales = self._scales_map(scales)
        elif self._scaled_codes:
            of_scales = self._weight_map(packed.scales, self._scales_box())
        values = (
            of_x,
            self._weight_map(packed.codes, self._codes_box()),
            of_scales,
            packed.scales.data_ptr(),
            0 if packed.row_scales is None else packed.row_scales.data_ptr(),
            scales.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            out.data_ptr(),
            partials,
            counters,
            m,
            n,
            k,
            dealt.whole,
            dealt.runs,
            out.stride(0) if m > 1 else n,
        )
        function.launch(
            (1, dealt.clusters * cluster),
            self._threads,
            values,
            self._TYPES,
            cluster=cluster,
            dependent=bool(config.dependent_launch) and launched_before(packed.codes),
        )

    def _x_map(self, codes: torch.Tensor) -> TensorMap:
        """The map of x's codes, encoded once for an address and a shape: serving repeats both."""
        m, width = codes.shape
        box = (self._config.block_m // self._config.cluster_n, _UNIT_K)
        return self._kept(
            (codes.data_ptr(), m, width),
            lambda: tensor_map(codes.data_ptr(), UINT8, (m, width), width, box, SWIZZLE_128),
        )

    def _scales_map(self, scales: torch.Tensor) -> TensorMap:
        """The map of the scales of groups of x."""
        groups, height = scales.shape
        box = (1, self._config.block_m)
        return self._kept(
            (scales.data_ptr(), groups, height, "scales"),
            lambda: tensor_map(
                scales.data_ptr(), FLOAT32, (groups, height), height * 4, box, NO_SWIZZLE
            ),
        )

    def _kept(self, key: tuple[object, ...], make: Callable[[], TensorMap]) -> TensorMap:
        found = self._maps.get(key)
        if found is None:
            found = self._maps[key] = make()
            if len(self._maps) > _MOST_MAPS:
                self._maps.popitem(last=False)
        return found

    def _codes_box(self) -> tuple[int, int]:
        """Rows and elements of a tile of codes: of bytes, or of row tiles and words."""
        rows = wgmma_block_rows(self._config)
        if self._code_bits == 8:
            return rows, _UNIT_K
        return rows // 16, 16 * _UNIT_K * self._code_bits // 32

    def _scales_box(self) -> tuple[int, int]:
        """The same of scales that codes take on, pairs of two rows a word."""
        return wgmma_block_rows(self._config) // 16, 8 * _UNIT_K // _STEP_K

    def _weight_map(self, tensor: torch.Tensor, box: tuple[int, int]) -> TensorMap:
        """The map of packed codes or scales, encoded once for a weight."""
        address, found = tensor.data_ptr(), self._weight_maps.get(id(tensor))
        if found is not None and found[0]() is tensor and found[1] == address:
            return found[2]
        of_bytes = box[1] == _UNIT_K and self._code_bits == 8
        rows, row_bytes = tensor.shape[0], tensor.nbytes // tensor.shape[0]
        element, swizzle = (UINT8, SWIZZLE_128) if of_bytes else (INT32, NO_SWIZZLE)
        shape = rows, row_bytes if of_bytes else row_bytes // 4
        made = tensor_map(address, element, shape, row_bytes, box, swizzle)
        key, maps = id(tensor), self._weight_maps
        maps[key] = (weakref.ref(tensor, lambda _: maps.pop(key, None)), address, made)
        return made


def _sm_count(index: int) -> int:
    properties: Any = torch.cuda.get_device_properties(index)
    return int(properties.multi_processor_count)
