"""Load compiled kernels into this process and call them; the struct mirrors humming/args.h."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import torch

from humming.errors import KernelLoadError, LaunchError, LayoutError
from humming.jit.cache import CompiledKernel
from humming.jit.detect import cpu_flags
from humming.jit.pool import parallel_for_address
from humming.spec.device import CODE_PATH_FLAGS, Device

if TYPE_CHECKING:
    from humming.jit.blas import BlasKernel
    from humming.jit.cuda.kernel import CudaKernel
    from humming.jit.experts_load import ExpertsKernel

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
STATUS = {
    1: "the shape is not one that the kernel takes",
    2: "the workspace is too small",
    3: "an operand has no data",
}
_ARGS = struct.Struct("=10Q7q")  # the fields of GemmArgs: addresses, then sizes and counts


Ready = Callable[[int, int, int, int], int]
"""A launch that lacks only addresses: of x, out and workspace, and the workspace's bytes."""


class PackedOperand(Protocol):
    """What a kernel reads of a packed weight; quantize.PackedWeight has it."""

    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def codes(self) -> torch.Tensor: ...
    @property
    def scales(self) -> torch.Tensor: ...
    @property
    def zero_points(self) -> torch.Tensor | None: ...
    @property
    def row_scales(self) -> torch.Tensor | None: ...
    @property
    def permutation(self) -> torch.Tensor | None: ...


class LoadedKernel:
    """A kernel in this process. One object serves all threads and all shapes."""

    def __init__(self, compiled: CompiledKernel, library: ctypes.CDLL) -> None:
        self.compiled = compiled
        self._library = library  # keeps the code mapped
        self._gemm = library.humming_gemm
        self._gemm.argtypes, self._gemm.restype = [ctypes.c_char_p], ctypes.c_int32
        workspace = library.humming_workspace_bytes
        workspace.argtypes, workspace.restype = [ctypes.c_int64] * 4, ctypes.c_int64
        self._workspace = lru_cache(maxsize=1024)(workspace)  # a call by ctypes takes a microsecond
        self._x_dtype = TORCH_DTYPES[compiled.source.static["activation_dtype"]]
        self._out_dtype = TORCH_DTYPES[compiled.source.static["output_dtype"]]

    def workspace_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:
        """Bytes of scratch memory that a launch of this shape needs; 0 = none."""
        return int(self._workspace(m, n, k, threads))

    def launch(
        self,
        x: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None = None,
        threads: int = 1,
    ) -> None:
        """Writes `out[m, n] = x[m, k] @ w.T + bias[n]`.

        x and out have the source's dtypes and a last stride of 1; rows may be strided. bias is fp32
        (another float dtype is converted on each call). workspace is a contiguous tensor of at
        least `workspace_bytes`; None allocates one. Raises LayoutError where an operand does not
        fit, LaunchError where the kernel reports a failure.
        """
        n, k = packed.n, packed.k
        check_operands(x, self._x_dtype, out, self._out_dtype, n, k)
        if bias is not None:
            bias = fp32_bias(bias, n)
        m = x.shape[0]
        if workspace is None:
            needed = self.workspace_bytes(m, n, k, threads)
            workspace = torch.empty(needed, dtype=torch.uint8)
        status = self._gemm(
            _ARGS.pack(
                x.data_ptr(),
                packed.codes.data_ptr(),
                packed.scales.data_ptr(),
                0 if packed.zero_points is None else packed.zero_points.data_ptr(),
                0 if packed.row_scales is None else packed.row_scales.data_ptr(),
                0 if packed.permutation is None else packed.permutation.data_ptr(),
                0 if bias is None else bias.data_ptr(),
                out.data_ptr(),
                workspace.data_ptr(),
                parallel_for_address() if threads > 1 else 0,
                workspace.nbytes,
                m,
                n,
                k,
                x.stride(0) if m > 1 else k,
                out.stride(0) if m > 1 else n,
                threads,
            )
        )
        if status:
            raise LaunchError(
                f"kernel {self.compiled.key} failed: {STATUS.get(status, f'status {status}')} "
                f"(m={m}, n={n}, k={k}, threads={threads}, workspace={workspace.nbytes} bytes)"
            )

    def ready(
        self, packed: PackedOperand, bias: torch.Tensor | None, m: int, threads: int
    ) -> Ready:
        """`launch` for m contiguous rows of x and out with everything else laid out: a function of
        their addresses, and of the workspace's address and size, to the kernel's status.

        Checks nothing: operands must be such as `launch` takes, bias fp32 and contiguous, and live
        as long as it is called.
        """
        n, k = packed.n, packed.k
        gemm, pack = self._gemm, _ARGS.pack
        further = (packed.zero_points, packed.row_scales, packed.permutation, bias)
        operands = [
            0 if tensor is None else tensor.data_ptr()
            for tensor in (packed.codes, packed.scales, *further)
        ]
        codes, scales, zero_points, row_scales, permutation, bias_at = operands
        pool = parallel_for_address() if threads > 1 else 0

        def launch(x: int, out: int, workspace: int, nbytes: int) -> int:
            status: int = gemm(
                pack(
                    x,
                    codes,
                    scales,
                    zero_points,
                    row_scales,
                    permutation,
                    bias_at,
                    out,
                    workspace,
                    pool,
                    nbytes,
                    m,
                    n,
                    k,
                    k,
                    n,
                    threads,
                )
            )
            return status

        return launch


_LOADED: dict[str, LoadedKernel | BlasKernel | ExpertsKernel] = {}
_LOCK = threading.Lock()


def load(
    compiled: CompiledKernel, device: Device
) -> LoadedKernel | BlasKernel | ExpertsKernel | CudaKernel:
    """The kernel of `compiled` in this process, loaded once.

    Raises KernelLoadError where this CPU lacks a flag of the code path (checked before the library
    is opened, as even its start-up code may use it), where `device` is of another kind than the
    kernel, or where the file cannot be opened.
    """
    if compiled.source.language == "cuda":
        from humming.jit.cuda.load import load_cuda  # it builds on this module

        return load_cuda(compiled, device)
    with _LOCK:
        if compiled.key not in _LOADED:
            if device.kind != "cpu":
                raise KernelLoadError(f"a CPU kernel cannot be loaded for {device.kind}")
            _LOADED[compiled.key] = _class_of(compiled)(compiled, open_library(compiled))
        return _LOADED[compiled.key]


def _class_of(
    compiled: CompiledKernel,
) -> type[LoadedKernel] | type[BlasKernel] | type[ExpertsKernel]:
    from humming.jit.blas import BlasKernel  # they build on this module
    from humming.jit.experts_load import ExpertsKernel

    if compiled.source.static.get("op") == "moe":
        return ExpertsKernel
    return BlasKernel if compiled.source.family == BlasKernel.family else LoadedKernel


def open_library(compiled: CompiledKernel) -> ctypes.CDLL:
    """The shared library of `compiled`; see `load` for what it raises."""
    code_path = compiled.source.static["code_path"]
    missing = sorted(set(CODE_PATH_FLAGS[code_path]) - cpu_flags())
    if missing:
        raise KernelLoadError(
            f"code path '{code_path}' must not run here: this CPU lacks {', '.join(missing)}"
        )
    try:
        return ctypes.CDLL(str(compiled.path))
    except OSError as error:
        raise KernelLoadError(f"kernel {compiled.key} cannot be loaded: {error}") from error


def check_operands(
    x: torch.Tensor,
    x_dtype: torch.dtype,
    out: torch.Tensor,
    out_dtype: torch.dtype,
    n: int,
    k: int,
) -> None:
    """Raises LayoutError unless x is `x_dtype` [m, k] and out is `out_dtype` [m, n], both on the
    CPU with contiguous rows."""
    if _is_rows(x, x_dtype, k) and _is_rows(out, out_dtype, n) and x.shape[0] == out.shape[0]:
        return
    if not (x.is_cpu and out.is_cpu):
        raise LayoutError(f"x and out must be on the CPU, but got {x.device} and {out.device}")
    if not _is_rows(x, x_dtype, k):
        raise LayoutError(
            f"x must be {x_dtype} [m, {k}] with contiguous rows, but got {x.dtype} "
            f"{list(x.shape)} with strides {list(x.stride())}"
        )
    raise LayoutError(
        f"out must be {out_dtype} [{x.shape[0]}, {n}] with contiguous rows, but got "
        f"{out.dtype} {list(out.shape)} with strides {list(out.stride())}"
    )


def _is_rows(tensor: torch.Tensor, dtype: torch.dtype, columns: int) -> bool:
    """Whether `tensor` is `dtype` [any, columns] on the CPU with contiguous rows."""
    return (
        tensor.dtype is dtype
        and tensor.ndim == 2
        and tensor.shape[1] == columns
        and tensor.stride()[1] == 1
        and tensor.is_cpu
    )


def fp32_bias(bias: torch.Tensor, n: int) -> torch.Tensor:
    """`bias` as contiguous fp32 [n]. Raises LayoutError on another shape."""
    if bias.shape != (n,):
        raise LayoutError(f"bias must have shape [{n}], but got {list(bias.shape)}")
    if bias.dtype is torch.float32 and bias.is_contiguous():
        return bias
    return bias.to(torch.float32).contiguous()
