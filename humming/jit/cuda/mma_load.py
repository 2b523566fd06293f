"""What a call of the family mma needs and enqueues: one kernel, or two where k is split through the
workspace.

Other families are load.py beside this; what all share is kernel.py.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from humming.jit.cache import CompiledKernel, read_library
from humming.jit.cuda.counters import zero_words
from humming.jit.cuda.driver import INT, LONG, POINTER, DeviceFunction
from humming.jit.cuda.kernel import ALIGNMENT, CudaKernel, config_of, launched_before
from humming.jit.load import PackedOperand
from humming.spec.config import MmaConfig

_ADD_THREADS, _ADD_OUTPUTS = 256, 8  # of a block of the second kernel, and of a thread
_STRIDE_END = 1 << 31  # elements between rows of x that the kernel can count


class MmaKernel(CudaKernel):
    """A kernel of the family mma. Its workspace holds partial sums where k is split through it.

    Where codes are multiplied, x is quantized before, and scales multiply fp32 sums. Else the
    weights that it multiplies are `(code - zero point) * scale` rounded once to x's dtype, but
    for scales of whole rows, which multiply the fp32 sums.
    """

    name = "humming_mma"
    takes_permutation = True
    _TYPES = (POINTER,) * 9 + (INT,) * 3 + (LONG,) * 2
    _CODES_TYPES = (POINTER,) * 10 + (INT,) * 3 + (LONG,) * 3
    _ADD_TYPES = (POINTER,) * 4 + (INT,) * 2 + (LONG,)

    def __init__(self, compiled: CompiledKernel) -> None:
        super().__init__(compiled)
        config: MmaConfig = config_of(compiled, MmaConfig)
        self._config = config
        self._through_memory = config.split_k > 1 and not config.cluster
        self._adders: dict[int, DeviceFunction] = {}

    def scratch_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:  # noqa: ARG002
        """fp32 sums of each share of k, rows of n rounded up to 8; or of a tile for each block."""
        config = self._config
        if config.stream_k:
            most = max(map(_sm_count, self._functions), default=0) * config.blocks_per_sm
            return most * config.block_m * config.block_n * 4
        return config.split_k * m * -(-n // 8) * 32 if self._through_memory else 0

    def _load_on(self, index: int) -> DeviceFunction:
        if self._through_memory:
            cubin = read_library(self.compiled.path)
            self._adders[index] = DeviceFunction(cubin, "humming_mma_add", index)
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
        m, n, k = x.shape[0], packed.n, packed.k
        if packed.permutation is not None:
            x = x.index_select(1, packed.permutation)
        rows = x.stride(0) if m > 1 else k
        if x.data_ptr() % ALIGNMENT or rows % (ALIGNMENT // 2) or not 0 <= rows < _STRIDE_END:
            room = x.new_empty((m, -(-k // 8) * 8))  # rows are read 16 bytes at a time
            x = room[:, :k].copy_(x)
            rows = room.shape[1]
        if bias is not None:
            bias = bias.to(torch.float32).contiguous()
        needed = self.scratch_bytes(m, n, k)
        sums = self._room(x, workspace, needed) if needed else None
        self._launch(function, x, rows, None, packed, bias, out, sums)

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
        if bias is not None:
            bias = bias.to(torch.float32).contiguous()
        needed = self.scratch_bytes(codes.shape[0], packed.n, packed.k)
        sums = self._room(codes, workspace, needed) if needed else None
        self._launch(function, codes, codes.stride(0), scales, packed, bias, out, sums)

    def _launch(
        self,
        function: DeviceFunction,
        x: torch.Tensor,
        rows: int,
        x_scales: torch.Tensor | None,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        sums: torch.Tensor | None,
    ) -> None:
        """Both kernels, on x whose rows are `rows` elements apart, codes if it has `x_scales`."""
        m, n, k, config = x.shape[0], packed.n, packed.k, self._config
        of_x = () if x_scales is None else (x_scales.data_ptr(),)
        pitch = () if x_scales is None else (x_scales.stride(0),)
        places = (*map(_address, (packed.row_scales, bias, out, sums)),)
        out_rows = out.stride(0) if m > 1 else n
        blocks = -(-m // config.block_m) * -(-n // config.block_n)
        arrived = 0
        if config.stream_k:
            index = x.device.index
            blocks = min(blocks * -(-k // config.block_k), _sm_count(index) * config.blocks_per_sm)
            arrived = zero_words(blocks, index).data_ptr()
        function.launch(
            (blocks, config.split_k),
            config.warps * 32,
            (
                x.data_ptr(),
                *of_x,
                packed.codes.data_ptr(),
                packed.scales.data_ptr(),
                _address(packed.zero_points),
                *places,
                arrived,
                m,
                n,
                k,
                rows,
                *pitch,
                out_rows,
            ),
            self._TYPES if x_scales is None else self._CODES_TYPES,
            cluster=config.split_k if config.cluster else 1,
            dependent=bool(config.dependent_launch) and launched_before(packed.codes),
        )
        if self._through_memory:
            if x_scales is not None and self.compiled.source.static["x_rows_scaled"]:
                of_x = (x_scales[-1].data_ptr(),)
            self._adders[x.device.index].launch(
                (-(-m * -(-n // _ADD_OUTPUTS) // _ADD_THREADS), 1),
                _ADD_THREADS,
                (*of_x, *places, m, n, out_rows),
                self._ADD_TYPES if x_scales is None else (POINTER, *self._ADD_TYPES),
            )


@lru_cache(maxsize=64)
def _sm_count(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
