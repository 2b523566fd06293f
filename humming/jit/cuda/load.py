"""The kernels of each CUDA family, what a call needs and enqueues; and `load_cuda`, their maker.

What they share is kernel.py; CPU kernels are jit/load.py.
"""

from __future__ import annotations

import threading

import torch

from humming.errors import KernelLoadError
from humming.jit.cache import CompiledKernel
from humming.jit.cuda.driver import INT, LONG, POINTER, DeviceFunction, device_index
from humming.jit.cuda.experts_load import GROUPED
from humming.jit.cuda.kernel import ALIGNMENT, CudaKernel, config_of, launched_before
from humming.jit.cuda.mma_load import MmaKernel
from humming.jit.cuda.scaled_mm_load import ScaledMmKernel
from humming.jit.cuda.wgmma8_load import Wgmma8Kernel
from humming.jit.cuda.wgmma_load import WgmmaKernel
from humming.jit.load import PackedOperand
from humming.spec.config import (
    DequantizeConfig,
    MmaConfig,
    ScaledMmConfig,
    SkinnyConfig,
    Wgmma8Config,
    WgmmaConfig,
)
from humming.spec.device import Device
from humming.spec.legality import skinny_block_rows

TILE_N = 16
"""Rows of a tile of layout cuda_n16k64; see quantize/layout_cuda.py."""

_GRID_Y_MOST = 65535
_LOCK = threading.Lock()
_LOADED: dict[tuple[str, str], CudaKernel] = {}
"""By the cubin's key and what else is known of it: formats that quantize x in different ways may be
multiplied by one cubin."""


class SkinnyKernel(CudaKernel):
    """A kernel of the family skinny. It needs no workspace.

    The bias of the codes is multiplied by x and taken away again, so an infinite x gives NaN where
    a plain product may give infinity (unless the config says exact_codes).
    """

    name = "humming_skinny"
    _TYPES = (POINTER,) * 8 + (INT,) * 3 + (LONG,) * 2

    def __init__(self, compiled: CompiledKernel) -> None:
        super().__init__(compiled)
        config = config_of(compiled, SkinnyConfig)
        self._config = config
        self._rows = skinny_block_rows(config)
        self._dependent = bool(config.dependent_launch)
        self._by_element = self.takes_permutation = bool(compiled.source.static["x_by_element"])

    def scratch_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:  # noqa: ARG002
        """None: 0."""
        return 0

    def _enqueue(
        self,
        function: DeviceFunction,
        x: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        m, n, k, config = x.shape[0], packed.n, packed.k, self._config
        if not self._by_element and _is_uneven(x):
            x = x.new_empty((m, k)).copy_(x)  # rows are read 16 bytes at a time
        if bias is not None:
            bias = bias.to(torch.float32).contiguous()
        function.launch(
            (-(-m // config.block_m), -(-n // self._rows) * config.split_k),
            config.warps * 32,
            (
                x.data_ptr(),
                packed.codes.data_ptr(),
                packed.scales.data_ptr(),
                _address(packed.zero_points),
                _address(packed.row_scales),
                _address(packed.permutation),
                _address(bias),
                out.data_ptr(),
                m,
                n,
                k,
                x.stride(0) if m > 1 else k,
                out.stride(0) if m > 1 else n,
            ),
            self._TYPES,
            cluster=config.split_k,
            dependent=self._dependent and launched_before(packed.codes),
        )


class DequantizeKernel(CudaKernel):
    """A kernel of the family dequantize: panels of the weight to 16 bits, then torch's matmul.

    The weights that torch multiplies are `(code - zero_point) * scale` rounded once to x's dtype.
    The workspace holds one panel, its rows padded to 16 bytes. The bias is rounded to x's dtype, as
    torch adds no other. With act-order x is gathered first.
    """

    name = "humming_dequantize"
    takes_permutation = True
    replayable = False  # torch multiplies
    _TYPES = (POINTER,) * 5 + (INT,) * 3

    def __init__(self, compiled: CompiledKernel) -> None:
        super().__init__(compiled)
        config = config_of(compiled, DequantizeConfig)
        self._config = config
        self._panel_n = min(config.panel_n or _GRID_Y_MOST * TILE_N, _GRID_Y_MOST * TILE_N)

    def scratch_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:  # noqa: ARG002
        """One panel of the weight in 16 bits."""
        return min(n, self._panel_n) * _pitch(k) * 2

    def _enqueue(
        self,
        function: DeviceFunction,
        x: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None,
    ) -> None:
        n, k = packed.n, packed.k
        w = self._workspace(x, n, k, workspace)
        if packed.permutation is not None:
            x = x.index_select(1, packed.permutation)
        elif _is_uneven(x):
            x = x.new_empty((x.shape[0], _pitch(k)))[:, :k].copy_(x)
        if bias is not None:
            bias = bias.to(self._dtype)
        for first in range(0, n, self._panel_n):
            rows = min(self._panel_n, n - first)
            self._dequantize(function, packed, first, rows, w)
            part = None if bias is None else bias[first : first + rows]
            _matmul(x, w[:rows, :k], part, out[:, first : first + rows])

    def _workspace(
        self, x: torch.Tensor, n: int, k: int, workspace: torch.Tensor | None
    ) -> torch.Tensor:
        """The scratch memory as [rows of a panel, pitch] of x's dtype."""
        rows, needed = min(n, self._panel_n), self.scratch_bytes(x.shape[0], n, k)
        room = self._room(x, workspace, needed)
        return room.view(torch.uint8).view(-1)[:needed].view(self._dtype).view(rows, -1)

    def _dequantize(
        self,
        function: DeviceFunction,
        packed: PackedOperand,
        first: int,
        rows: int,
        w: torch.Tensor,
    ) -> None:
        """Rows [first, first + rows) of the weight into the first `rows` of `w`."""
        tile = first // TILE_N
        k_tiles = packed.codes.shape[1]
        tiles_of_block = self._config.warps * self._config.unroll
        function.launch(
            (-(-k_tiles // tiles_of_block), -(-rows // TILE_N)),
            self._config.warps * 32,
            (
                _from_row_tile(packed.codes, tile),
                _from_row_tile(packed.scales, tile),
                _from_row_tile(packed.zero_points, tile),
                _from_row_tile(packed.row_scales, first),
                w.data_ptr(),
                rows,
                packed.k,
                w.stride(0),
            ),
            self._TYPES,
        )


def _matmul(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor
) -> None:
    """`target = x @ w.T + bias`, as exact as torch's own linear.

    From unaligned rows, and into strided or unaligned ones, cuBLAS picks other algorithms, some of
    which add up parts of k, or the bias, in 16 bits: 1.2 to 1.8 times the error, measured on an
    H200.
    """
    if target.stride(0) != target.shape[1] or target.data_ptr() % ALIGNMENT:
        target.copy_(torch.nn.functional.linear(x, w, bias))
    elif bias is None:
        torch.mm(x, w.t(), out=target)
    else:
        torch.addmm(bias, x, w.t(), out=target)


def _is_uneven(x: torch.Tensor) -> bool:
    """Whether rows of x begin elsewhere than at 16 whole bytes."""
    return bool(x.data_ptr() % ALIGNMENT or (x.shape[0] > 1 and x.stride(0) % (ALIGNMENT // 2)))


def _pitch(k: int) -> int:
    """Elements of a row of dequantized weights: k, so that each row begins at 16 whole bytes."""
    return -(-k // 8) * 8


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _from_row_tile(tensor: torch.Tensor | None, index: int) -> int:
    """The address of `tensor[index]`, or 0 where there is no tensor."""
    return 0 if tensor is None else tensor.data_ptr() + index * tensor.stride(0) * tensor.itemsize


_CLASSES: dict[str, type[CudaKernel]] = {
    SkinnyConfig.family: SkinnyKernel,
    DequantizeConfig.family: DequantizeKernel,
    MmaConfig.family: MmaKernel,
    WgmmaConfig.family: WgmmaKernel,
    Wgmma8Config.family: Wgmma8Kernel,
    ScaledMmConfig.family: ScaledMmKernel,
}


def _class_of(compiled: CompiledKernel) -> type[CudaKernel]:
    family = compiled.source.family
    return GROUPED[family] if compiled.source.static.get("op") == "moe" else _CLASSES[family]


def load_cuda(compiled: CompiledKernel, device: Device) -> CudaKernel:
    """The kernel of `compiled` in this process, loaded on `device`, once.

    Raises KernelLoadError where `device` is no GPU of this process or its driver refuses.
    """
    if device.kind != "cuda":
        raise KernelLoadError(f"a CUDA kernel cannot be loaded for {device.kind}")
    index = device_index(device)
    key = compiled.key, repr(sorted(compiled.source.static.items()))
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = _class_of(compiled)(compiled)
        kernel = _LOADED[key]
    kernel.function(index)
    return kernel
