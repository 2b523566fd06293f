"""Call a compiled CPU kernel for the experts of a mixture; the struct mirrors
humming/experts_args.h. Dense kernels are load.py."""

from __future__ import annotations

import ctypes
import struct
from typing import Protocol

import torch

from humming.errors import LaunchError
from humming.jit.cache import CompiledKernel
from humming.jit.load import STATUS, TORCH_DTYPES, PackedOperand
from humming.jit.pool import parallel_for_address

_ARGS = struct.Struct("=11Q12q")  # the fields of ExpertsArgs: addresses, then sizes and counts
GROUPINGS = {"indexed": 0, "contiguous": 1, "masked": 2}
"""How rows are given to experts, and the number that says so."""


class ExpertsOperand(PackedOperand, Protocol):
    """What a kernel reads of packed experts, each tensor with `experts` in front;
    quantize.PackedExperts has it."""

    @property
    def experts(self) -> int: ...


class RowsOperand(Protocol):
    """Which rows go to which expert; moe.Rows has it."""

    @property
    def grouping(self) -> str: ...
    @property
    def groups(self) -> torch.Tensor: ...
    @property
    def count(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def first_expert(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def made(self) -> dict[object, torch.Tensor]: ...


class ExpertsKernel:
    """A kernel in this process. One object serves all threads and all shapes."""

    def __init__(self, compiled: CompiledKernel, library: ctypes.CDLL) -> None:
        self.compiled = compiled
        self._library = library  # keeps the code mapped
        self._call = library.humming_experts
        self._call.argtypes, self._call.restype = [ctypes.c_char_p], ctypes.c_int32
        self._room = library.humming_experts_workspace_bytes
        self._room.argtypes, self._room.restype = [ctypes.c_int64] * 5, ctypes.c_int64
        self.x_dtype = TORCH_DTYPES[compiled.source.static["activation_dtype"]]

    def workspace_bytes(self, m: int, n: int, k: int, threads: int = 1, experts: int = 1) -> int:
        """Bytes of scratch memory that a launch with `m` rows of out needs."""
        return int(self._room(m, experts, n, k, threads))

    def launch_experts(
        self,
        x: torch.Tensor,
        packed: ExpertsOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        rows: RowsOperand,
        workspace: torch.Tensor,
        threads: int = 1,
    ) -> None:
        """Writes `out[rows, n]` of x `[rows of x, k]`, both with contiguous rows, `bias` fp32
        [experts, n]; operands were checked. Raises LaunchError where the kernel reports a failure.
        """
        status = self._call(
            _ARGS.pack(
                x.data_ptr(),
                packed.codes.data_ptr(),
                packed.scales.data_ptr(),
                _address(packed.zero_points),
                _address(packed.row_scales),
                _address(packed.permutation),
                _address(bias),
                out.data_ptr(),
                rows.groups.data_ptr(),
                workspace.data_ptr(),
                parallel_for_address() if threads > 1 else 0,
                workspace.nbytes,
                GROUPINGS[rows.grouping],
                rows.count,
                rows.shared,
                packed.experts,
                rows.first_expert,
                rows.capacity,
                packed.n,
                packed.k,
                max(x.stride(0), packed.k) if x.shape[0] > 1 else packed.k,
                out.stride(0) if out.shape[0] > 1 else packed.n,
                threads,
            )
        )
        if status:
            raise LaunchError(
                f"kernel {self.compiled.key} failed: {STATUS.get(status, f'status {status}')} "
                f"(rows={rows.count}, experts={packed.experts}, n={packed.n}, k={packed.k}, "
                f"threads={threads}, workspace={workspace.nbytes} bytes)"
            )


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
