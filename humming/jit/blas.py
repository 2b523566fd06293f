"""The family blas in this process: a panel of w becomes an fp32 matrix, which torch's matmul
multiplies with x. Kernels that multiply themselves are load.py."""

from __future__ import annotations

import ctypes
import struct

import torch

from humming.jit.cache import CompiledKernel
from humming.jit.load import TORCH_DTYPES, PackedOperand, check_operands, fp32_bias
from humming.jit.pool import parallel_for_address
from humming.spec.config import BlasConfig

_ARGS = struct.Struct("=7Q6q")  # the fields of DequantizeArgs: addresses, then sizes and counts
_LINE_BYTES = 64
_PANEL_ROWS = 16


class BlasKernel:
    """A kernel of the family in this process. One object serves all threads and all shapes.

    Sums are those of torch's fp32 matmul: `torch.set_float32_matmul_precision` counts here too.
    """

    family = BlasConfig.family

    def __init__(self, compiled: CompiledKernel, library: ctypes.CDLL) -> None:
        self.compiled = compiled
        self._library = library  # keeps the code mapped
        self._dequantize = library.humming_dequantize
        self._dequantize.argtypes, self._dequantize.restype = [ctypes.c_char_p], None
        self._panel_n = int(compiled.source.static["panel_n"])
        self._x_dtype = TORCH_DTYPES[compiled.source.static["activation_dtype"]]
        self._out_dtype = TORCH_DTYPES[compiled.source.static["output_dtype"]]

    def workspace_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:  # noqa: ARG002
        """Bytes of scratch memory that a launch of this shape needs, for any number of threads."""
        return sum(_lines(size) for size in self._floats(m, n, k)) + _LINE_BYTES

    def launch(
        self,
        x: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None = None,
        threads: int = 1,
    ) -> None:
        """Writes `out[m, n] = x[m, k] @ w.T + bias[n]`; operands as LoadedKernel.launch takes
        them."""
        n, k, m = packed.n, packed.k, x.shape[0]
        check_operands(x, self._x_dtype, out, self._out_dtype, n, k)
        if m == 0:
            return
        if workspace is None:
            workspace = torch.empty(self.workspace_bytes(m, n, k), dtype=torch.uint8)
        x, bias = x.detach(), None if bias is None else fp32_bias(bias, n)
        matrix, sums, wide = self._cut(workspace, m, n, k)
        if wide is not None:
            x = wide.copy_(x)
        with torch.no_grad():
            for first in range(0, n, self._panel_n):
                columns = slice(first, min(first + self._panel_n, n))
                count = columns.stop - first
                self._fill(matrix, packed, first, count, threads)
                product = torch.mm(x, matrix[:, :count], out=sums[:, :count])
                if bias is not None:
                    product += bias[columns]
                out[:, columns].copy_(product)

    def _fill(
        self, matrix: torch.Tensor, packed: PackedOperand, first: int, rows: int, threads: int
    ) -> None:
        zeros, scales, order = packed.zero_points, packed.row_scales, packed.permutation
        self._dequantize(
            _ARGS.pack(
                packed.codes.data_ptr(),
                packed.scales.data_ptr(),
                0 if zeros is None else zeros.data_ptr(),
                0 if scales is None else scales.data_ptr(),
                0 if order is None else order.data_ptr(),
                matrix.data_ptr(),
                parallel_for_address() if threads > 1 else 0,
                packed.n,
                packed.k,
                first // _PANEL_ROWS,
                -(-rows // _PANEL_ROWS),
                matrix.shape[1],
                threads,
            )
        )

    def _floats(self, m: int, n: int, k: int) -> tuple[int, int, int]:
        """Sizes of the matrix, of the sums, and of x as fp32."""
        width = min(self._panel_n, -(-n // _PANEL_ROWS) * _PANEL_ROWS)
        return k * width, m * width, 0 if self._x_dtype is torch.float32 else m * k

    def _cut(
        self, workspace: torch.Tensor, m: int, n: int, k: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """The workspace's matrix, sums, and room for x as fp32."""
        start, parts = -workspace.data_ptr() % _LINE_BYTES, []
        for size in self._floats(m, n, k):
            parts.append(workspace[start : start + 4 * size].view(torch.float32))
            start += _lines(size)
        matrix, sums, wide = parts
        return matrix.view(k, -1), sums.view(m, -1), wide.view(m, k) if wide.numel() else None


def _lines(floats: int) -> int:
    """Bytes of whole cache lines that hold so many floats."""
    return -(-4 * floats // _LINE_BYTES) * _LINE_BYTES
