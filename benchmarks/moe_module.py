"""A whole block of experts, router to weighted sum, on a GPU: ours against the same of torch's bf16
grouped products, in CUDA graphs, in turn.

    python -m benchmarks.moe_module --out FILE [--m 1,64,1024] [--format mxfp4,int4g128]

The sizes are those of Qwen3-30B-A3B. torch's side sorts rows, multiplies by `torch._grouped_mm` and
sums up as transformers' experts do. Eight blocks, walked over in turn, keep weights cold.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from benchmarks.gemm_sides import _median_of
from benchmarks.provenance import provenance
from humming.jit.detect import cuda_devices
from humming.moe.experts import HummingExperts
from humming.moe.module import HummingMoE
from humming.moe.router import RouterRule
from humming.moe.stack import ExpertStack
from humming.quantize.drawn import drawn

EXPERTS, TOP_K, HIDDEN, WIDTH = 128, 8, 2048, 768
COPIES, ROUNDS, REPLAYS = 4, 7, 3


def ours(format: str, seed: int) -> HummingMoE:
    """A block with random experts, of which every fourth is alike."""
    draw = torch.Generator("cuda").manual_seed(seed)

    def stack(n: int, k: int) -> ExpertStack:
        few = [drawn(format, n, k, draw, torch.bfloat16) for _ in range(4)]
        every = (few[expert % 4] for expert in range(EXPERTS))
        return ExpertStack.of(every, None, torch.bfloat16, TOP_K, EXPERTS)

    experts = HummingExperts(stack(2 * WIDTH, HIDDEN), stack(HIDDEN, WIDTH))
    router = torch.randn(EXPERTS, HIDDEN, device="cuda", generator=draw).to(torch.bfloat16)
    return HummingMoE(router / HIDDEN**0.5, experts, RouterRule(TOP_K))


def theirs(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same block in bf16."""
    draw = torch.Generator("cuda").manual_seed(seed)

    def weights(*shape: int) -> torch.Tensor:
        made = torch.randn(shape, device="cuda", generator=draw, dtype=torch.bfloat16)
        return made.mul_(shape[-1] ** -0.5)

    router, up = weights(EXPERTS, HIDDEN), weights(EXPERTS, 2 * WIDTH, HIDDEN)
    down = weights(EXPERTS, HIDDEN, WIDTH)
    grouped: Any = torch._grouped_mm

    def block(x: torch.Tensor) -> torch.Tensor:
        scores = functional.linear(x, router).softmax(-1, dtype=torch.float32)
        chosen, ids = scores.topk(TOP_K, dim=-1)
        chosen = (chosen / chosen.sum(-1, keepdim=True)).to(x.dtype)
        flat, order = ids.flatten().sort(stable=True)
        counts = torch.histc(flat.float(), EXPERTS, 0, EXPERTS - 1)
        ends = counts.cumsum(0).to(torch.int32)
        gate, value = grouped(x[order // TOP_K], up.transpose(1, 2), offs=ends).chunk(2, dim=-1)
        out = grouped(functional.silu(gate) * value, down.transpose(1, 2), offs=ends)
        out = out * chosen.flatten()[order, None]
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=x.device)
        summed: torch.Tensor = out[back].view(len(x), TOP_K, HIDDEN).sum(1)
        return summed

    return block


def samples(
    blocks: Sequence[Callable[[torch.Tensor], torch.Tensor]], m: int
) -> Callable[[int], float]:
    """Takes the median of some replays of a graph over all blocks."""
    x = torch.randn(m, HIDDEN, device="cuda", dtype=torch.bfloat16)

    def call(block: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], torch.Tensor]:
        return lambda: block(x)

    return _median_of([call(block) for block in blocks])


def main() -> None:
    """Measures, prints a line a point, and writes all samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--m", default="1,64,1024")
    parser.add_argument("--format", default="mxfp4,int4g128")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    with torch.inference_mode():
        dense = [theirs(seed) for seed in range(COPIES)]
        for format in arguments.format.split(","):
            blocks = [ours(format, seed) for seed in range(COPIES)]
            for m in map(int, arguments.m.split(",")):
                sides = samples(blocks, m), samples(dense, m)
                taken = [[side(REPLAYS) for side in sides] for _ in range(ROUNDS)]
                ratios = sorted(b / a for a, b in taken)
                row = {"format": format, "m": m, "us": sorted(a for a, _ in taken)[ROUNDS // 2]}
                row |= {"torch_us": sorted(b for _, b in taken)[ROUNDS // 2]}
                row |= {"ratio": ratios[ROUNDS // 2], "samples_us": taken}
                rows.append(row)
                print(json.dumps({key: row[key] for key in row if key != "samples_us"}), flush=True)
    if arguments.out:
        text = {**provenance(cuda_devices()[0]), "rows": rows}
        arguments.out.write_text(json.dumps(text, indent=1))


if __name__ == "__main__":
    main()
