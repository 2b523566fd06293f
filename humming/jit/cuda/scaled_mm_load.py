"""The family scaled_mm: torch's own product of fp8 by fp8, with a scale a row of each, on the
layout that every other family of bytes reads. Of ours only the kernel that quantizes x runs."""

from __future__ import annotations

import torch

from humming.jit.cache import CompiledKernel
from humming.jit.cuda.driver import DeviceFunction
from humming.jit.cuda.kernel import CudaKernel, config_of
from humming.jit.load import PackedOperand
from humming.spec.config import ScaledMmConfig

_FP8 = torch.float8_e4m3fn
_ROWS = 16  # a product has whole multiples of them


class ScaledMmKernel(CudaKernel):
    """torch._scaled_mm by rows. The bias is rounded to bf16, as torch adds no other."""

    name = "humming_scaled_mm"
    replayable = False

    def __init__(self, compiled: CompiledKernel) -> None:
        super().__init__(compiled)
        self._fast = bool(config_of(compiled, ScaledMmConfig).fast_sums)

    def scratch_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:  # noqa: ARG002
        """None: torch allocates what it needs."""
        return 0

    def _enqueue_codes(
        self,
        function: DeviceFunction,  # noqa: ARG002
        codes: torch.Tensor,
        scales: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        m, n = out.shape
        assert packed.row_scales is not None
        of_w = packed.codes.view(torch.uint8).view(_FP8)  # [n rounded up to 16, k to 128]
        padded = of_w.shape[0]
        if bias is not None:
            bias = torch.nn.functional.pad(bias.to(out.dtype), (0, padded - n))
        whole = padded == n and out.is_contiguous() and out.data_ptr() % _ROWS == 0
        made = torch._scaled_mm(
            codes.view(_FP8),
            of_w.t(),
            scales[0, :m, None],
            packed.row_scales[None, :padded],
            bias=bias,
            out_dtype=out.dtype,
            use_fast_accum=self._fast,
            **({"out": out} if whole else {}),
        )
        if not whole:
            out.copy_(made[:, :n])
