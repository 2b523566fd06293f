"""Grouped kernels of the CUDA families, in this process: what a call for the experts of a mixture
enqueues. Kernels around them are experts_around.py, dense calls load.py, the CPU's
jit/experts_load.py."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from humming.errors import LaunchError
from humming.jit.cache import CompiledKernel
from humming.jit.cuda.driver import INT, LONG, POINTER, DeviceFunction
from humming.jit.cuda.experts_around import address, tiles_of
from humming.jit.cuda.input_quantizer import QuantizedInput
from humming.jit.cuda.kernel import ALIGNMENT, CudaKernel, config_of, launched_before
from humming.jit.cuda.tensor_map import (
    INT32,
    NO_SWIZZLE,
    SWIZZLE_128,
    UINT8,
    TensorMap,
    tensor_map,
)
from humming.jit.experts_load import ExpertsOperand, RowsOperand
from humming.spec.config import MmaConfig, SkinnyConfig, Wgmma8Config, WgmmaConfig
from humming.spec.legality import skinny_block_rows, wgmma_block_rows, wgmma_threads

_STAGE_K, _UNIT_K, _STEP_K = 64, 128, 32  # columns: of a stage of wgmma, a unit and step of wgmma8


class GroupedCall(NamedTuple):
    """Arguments of a call: addresses of x and the weight's parts, of bias, output, tiles and order;
    rows that share one of x, n, k; elements from row to row of x and output, bytes from expert to
    expert of codes and scales; where x is codes, the address of its scales and elements from group
    to group of them. `most` tiles may follow."""

    most: int
    weights: tuple[int, ...]
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    x_scales: tuple[int, int] = (0, 0)


class GroupedKernel(CudaKernel):
    """A kernel of the families skinny and mma for experts: one launch for all of them."""

    def scratch_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:  # noqa: ARG002
        """None: 0."""
        return 0

    def experts_workspace_bytes(self, rows: RowsOperand, packed: ExpertsOperand) -> int:
        """Where x is quantized, room for that; what is derived from rows is kept with them."""
        return 0 if self.input is None else self.input.nbytes(rows.count // rows.shared, packed.k)

    @property
    def block_m(self) -> int:
        """Rows of an expert that a tile has."""
        return int(self.compiled.source.static["block_m"])

    def launch_experts(
        self,
        x: torch.Tensor,
        packed: ExpertsOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        rows: RowsOperand,
        workspace: torch.Tensor | None = None,
        threads: int = 1,  # noqa: ARG002  (as CPU kernels take it)
    ) -> None:
        """Enqueues `out[rows, n]` of x `[rows of x, k]`, both with contiguous rows; operands were
        checked. Raises LaunchError where the driver refuses."""
        made = QuantizedInput(x, None)
        if self.input is not None:
            room = self._room(x, workspace, self.experts_workspace_bytes(rows, packed))
            made = self.input.enqueue(x, room.view(torch.uint8))
        self.launch_quantized_experts(made, packed, bias, out, rows)

    def launch_quantized_experts(
        self,
        made: QuantizedInput,
        packed: ExpertsOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        rows: RowsOperand,
    ) -> None:
        """The same where this kernel's `input` has quantized x already."""
        self._check_parts(packed)
        x, scales = made.codes, made.scales
        step = x.stride(0) if x.shape[0] > 1 else x.shape[1]
        if x.data_ptr() % ALIGNMENT or step * x.element_size() % ALIGNMENT:
            x = x.new_empty(x.shape[0], -(-packed.k // 8) * 8)[:, : packed.k].copy_(x)
            step = x.stride(0)
        order, tiles, most = tiles_of(rows, packed.experts, self.block_m)
        expert_bytes = (packed.codes[0].nbytes, packed.scales[0].nbytes)
        call = GroupedCall(
            most=most,
            weights=(
                x.data_ptr(),
                packed.codes.data_ptr(),
                packed.scales.data_ptr(),
                address(packed.zero_points),
                address(packed.row_scales),
            ),
            places=(address(bias), out.data_ptr(), tiles.data_ptr(), address(order)),
            sizes=(rows.shared, packed.n, packed.k),
            strides=(step, out.stride(0) if out.shape[0] > 1 else packed.n, *expert_bytes),
            x_scales=(0, 0) if scales is None else (scales.data_ptr(), scales.stride(0)),
        )
        self._launch(self.function(x.device.index), packed, call)

    @abstractmethod
    def _launch(self, function: DeviceFunction, packed: ExpertsOperand, call: GroupedCall) -> None:
        """Enqueues `call` with this family's grid and order of arguments."""

    def _enqueue(self, *_args: Any, **_kwargs: Any) -> None:
        raise LaunchError("a kernel for experts multiplies experts; call launch_experts")


class GroupedSkinnyKernel(GroupedKernel):
    """The family skinny: few rows an expert."""

    name = "humming_skinny"
    takes_permutation = True
    _TYPES = (POINTER,) * 10 + (INT,) * 3 + (LONG,) * 4

    def _launch(self, function: DeviceFunction, packed: ExpertsOperand, call: GroupedCall) -> None:
        config: SkinnyConfig = config_of(self.compiled, SkinnyConfig)
        along_n = -(-packed.n // skinny_block_rows(config))
        last: tuple[int, ...] = ()
        grid = call.most, along_n * config.split_k
        dependent = bool(config.dependent_launch)
        if config.walk:  # weights are read before the kernel before has ended
            most = _sm_count(function.index) * config.blocks_per_sm
            grid, last = (min(call.most * along_n, most), 1), (packed.experts,)
            dependent = dependent and launched_before(packed.codes)
        function.launch(
            grid,
            config.warps * 32,
            (
                *call.weights,
                address(packed.permutation),
                *call.places,
                *call.sizes,
                *call.strides,
                *last,
            ),
            self._TYPES + (INT,) * len(last),
            cluster=config.split_k,
            dependent=dependent,
        )


class GroupedMmaKernel(GroupedKernel):
    """The family mma: many rows an expert."""

    name = "humming_mma"
    _TYPES = (POINTER,) * 9 + (INT,) * 4 + (LONG,) * 4
    _CODES_TYPES = (POINTER,) * 10 + (INT,) * 4 + (LONG,) * 5

    def _launch(self, function: DeviceFunction, packed: ExpertsOperand, call: GroupedCall) -> None:
        config: MmaConfig = config_of(self.compiled, MmaConfig)
        (x, *weights), (of_x, pitch) = call.weights, call.x_scales
        first, last = ((x, of_x), (pitch,)) if of_x else ((x,), ())
        function.launch(
            (call.most * -(-packed.n // config.block_n), config.split_k),
            config.warps * 32,
            (*first, *weights, *call.places, call.most, *call.sizes, *call.strides, *last),
            self._CODES_TYPES if of_x else self._TYPES,
            cluster=config.split_k if config.cluster else 1,
            dependent=bool(config.dependent_launch),
        )


class _MappedKernel(GroupedKernel):
    """One whose weights come by tensor maps: those of all experts are rows of one."""

    def __init__(self, compiled: CompiledKernel) -> None:
        super().__init__(compiled)
        self._maps: dict[int, tuple[weakref.ref[torch.Tensor], int, TensorMap]] = {}

    def _map(self, tensor: torch.Tensor, box: tuple[int, int], of_bytes: bool = False) -> TensorMap:
        """Rows, or row tiles, of all experts by bytes or words, encoded once for a weight."""
        address, found = tensor.data_ptr(), self._maps.get(id(tensor))
        if found is not None and found[0]() is tensor and found[1] == address:
            return found[2]
        rows = tensor.shape[0] * tensor.shape[1]
        row_bytes = tensor.nbytes // rows
        element, swizzle = (UINT8, SWIZZLE_128) if of_bytes else (INT32, NO_SWIZZLE)
        shape = rows, row_bytes if of_bytes else row_bytes // 4
        made = tensor_map(address, element, shape, row_bytes, box, swizzle)
        key, maps = id(tensor), self._maps
        maps[key] = (weakref.ref(tensor, lambda _: maps.pop(key, None)), address, made)
        return made


class GroupedWgmmaKernel(_MappedKernel):
    """The family wgmma: many rows an expert, on compute capability 9.0."""

    name = "humming_wgmma"
    _TYPES = (None, *(POINTER,) * 8, *(INT,) * 3, *(LONG,) * 4)

    def _launch(self, function: DeviceFunction, packed: ExpertsOperand, call: GroupedCall) -> None:
        config: WgmmaConfig = config_of(self.compiled, WgmmaConfig)
        tiles = call.most * -(-packed.n // wgmma_block_rows(config))
        x, _, *factors = call.weights
        function.launch(
            (1, min(tiles, _sm_count(function.index) * config.blocks_per_sm)),
            wgmma_threads(config),
            (
                self._codes(packed.codes, config),
                x,
                *factors,
                *call.places,
                *call.sizes,
                *call.strides,
            ),
            self._TYPES,
            dependent=bool(config.dependent_launch),
        )

    def _codes(self, codes: torch.Tensor, config: WgmmaConfig) -> TensorMap:
        bits = int(self.compiled.source.static["code_bits"])
        return self._map(codes, (wgmma_block_rows(config) // 16, 16 * _STAGE_K * bits // 32))


class GroupedWgmma8Kernel(_MappedKernel):
    """The family wgmma8: codes of x by codes of w, on compute capability 9.0."""

    name = "humming_wgmma8"
    _TYPES = (None, None, *(POINTER,) * 8, *(INT,) * 3, *(LONG,) * 5)

    def _launch(self, function: DeviceFunction, packed: ExpertsOperand, call: GroupedCall) -> None:
        config: Wgmma8Config = config_of(self.compiled, Wgmma8Config)
        static, rows = self.compiled.source.static, wgmma_block_rows(config)
        bits = int(static["code_bits"])
        if bits == 8:
            codes = self._map(packed.codes, (rows, _UNIT_K), of_bytes=True)
        else:
            codes = self._map(packed.codes, (rows // 16, 16 * _UNIT_K * bits // 32))
        scales = codes
        if static["packed_group_size"] == _STEP_K:  # codes take them on
            scales = self._map(packed.scales, (rows // 16, 8 * _UNIT_K // _STEP_K))
        x, _, of_groups, _, of_rows = call.weights
        of_x, pitch = call.x_scales
        tiles = call.most * -(-packed.n // rows)
        function.launch(
            (1, min(tiles, _sm_count(function.index) * config.blocks_per_sm)),
            wgmma_threads(config),
            (
                codes,
                scales,
                *(x, of_x, of_groups, of_rows),
                *call.places,
                *call.sizes,
                *call.strides,
                pitch,
            ),
            self._TYPES,
            dependent=bool(config.dependent_launch),
        )


@lru_cache(maxsize=64)
def _sm_count(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


GROUPED: dict[str, type[GroupedKernel]] = {
    SkinnyConfig.family: GroupedSkinnyKernel,
    MmaConfig.family: GroupedMmaKernel,
    WgmmaConfig.family: GroupedWgmmaKernel,
    Wgmma8Config.family: GroupedWgmma8Kernel,
}
