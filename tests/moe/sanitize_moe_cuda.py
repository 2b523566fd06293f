"""Blocks of experts, launched once each at sizes that every family of grouped kernels serves: what
compute-sanitizer is run on.

    compute-sanitizer --tool memcheck python tests/moe/sanitize_moe_cuda.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import humming  # noqa: E402
from humming.jit.cache import compiled  # noqa: E402
from humming.jit.detect import cuda_devices  # noqa: E402
from humming.jit.load import load  # noqa: E402
from humming.moe.router import RouterRule  # noqa: E402
from humming.moe.rows import Rows  # noqa: E402
from humming.moe.stack import ExpertStack  # noqa: E402
from humming.quantize.drawn import drawn  # noqa: E402
from humming.spec.config import MmaConfig  # noqa: E402
from humming.spec.legality import config_violations  # noqa: E402

MMA = MmaConfig(64, 64, 64, 2, 2, 1, 2, 1, 0, 0, 8, 1, 1)
"""A family that no default of a Hopper is of."""


def main() -> None:
    """Few rows, some, many; masked and contiguous ones; ids of other ranks."""
    draw = torch.Generator("cuda").manual_seed(1)
    device = cuda_devices()[0]
    for format in ("int4g128", "mxfp4", "mxfp4-fp8e4m3", "fp8e4m3b128-fp8e4m3g128"):

        def stack(n: int, k: int, format: str = format) -> ExpertStack:
            every = [drawn(format, n, k, draw, torch.float16) for _ in range(6)]
            return ExpertStack.of(every, None, torch.float16, 2, 6)

        experts = humming.HummingExperts(stack(176, 200), stack(200, 88))
        router = torch.randn(6, 200, device="cuda", generator=draw)
        block = humming.HummingMoE(router.half(), experts, RouterRule(2))
        weight, up = experts.up.packed(), experts.up
        with torch.inference_mode():
            for m in (1, 9, 70, 500):
                x = torch.randn(m, 200, device="cuda", generator=draw).half()
                block(x)
                ids = torch.randint(-2, 9, (m, 2), device="cuda", generator=draw)
                humming.moe_gemm(x, weight, ids=ids)
                offsets = torch.linspace(0, m, 7, device="cuda").int()
                humming.moe_gemm(x, weight, offsets=offsets)
                counts = torch.randint(0, m + 1, (6,), device="cuda", generator=draw)
                humming.moe_gemm(x.repeat(6, 1, 1), weight, counts=counts)
                problem = up.spec.problem(torch.float16, False).at(m)
                if not config_violations(MMA, problem, device):
                    kernel: Any = load(compiled(MMA, problem, device), device)
                    rows = Rows.indexed(ids)
                    room = kernel.experts_workspace_bytes(rows, weight)
                    room = torch.empty(room, dtype=torch.uint8, device="cuda")
                    out = x.new_empty(rows.count, weight.n)
                    kernel.launch_experts(x, weight, None, out, rows, room)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
