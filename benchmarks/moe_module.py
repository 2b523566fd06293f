"""A whole block of experts, router to weighted sum, on a GPU, as CUDA graphs, in turn: ours,
transformers' in bf16, and humming-kernels' grouped products with torch's functions around them.

    python -m benchmarks.moe_module --peer DIR --out FILE [--m 1,64,1024] [--format mxfp4,int4g128]
                                    [--table FILE]

The sizes are those of Qwen3-30B-A3B. Every side walks through four blocks and twelve inputs, which
keeps weights cold. transformers' side is the faster of its implementations that a graph can hold.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.gemm_sides import _median_of
from benchmarks.moe_peer import ExpertsPeer
from benchmarks.provenance import provenance
from humming.jit.detect import cuda_devices
from humming.moe.experts import HummingExperts
from humming.moe.module import HummingMoE
from humming.moe.plan import bound_experts
from humming.moe.router import RouterRule
from humming.moe.stack import ExpertStack
from humming.plan import place_of
from humming.quantize.drawn import drawn
from tuner.promoting.verdict import paired_ratio

EXPERTS, TOP_K, HIDDEN, WIDTH = 128, 8, 2048, 768
COPIES, DRAWS, ROUNDS, REPLAYS = 4, 12, 7, 2
_FEW_TOKENS = 8  # for which transformers may gather each token's weights
SIZES = {
    "experts": EXPERTS,
    "top_k": TOP_K,
    "hidden": HIDDEN,
    "width": WIDTH,
    "copies": COPIES,
}
Block = Callable[[torch.Tensor], torch.Tensor]
Sample = Callable[[int], float]


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


def theirs(seed: int, implementation: str) -> Block:
    """transformers' block in bf16 with random weights."""
    from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    config: Any = Qwen3MoeConfig(
        hidden_size=HIDDEN,
        moe_intermediate_size=WIDTH,
        num_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        norm_topk_prob=True,
    )
    config._experts_implementation = implementation
    torch.cuda.manual_seed(seed)
    with torch.device("cuda"):
        block: Any = Qwen3MoeSparseMoeBlock(config).to(torch.bfloat16)
    for parameter in block.parameters():
        parameter.data.normal_(std=parameter.shape[-1] ** -0.5)

    def call(x: torch.Tensor) -> torch.Tensor:
        found = block(x[None])
        out: torch.Tensor = found[0] if isinstance(found, tuple) else found
        return out

    call.block = block  # type: ignore[attr-defined]
    return call


def sampled(blocks: Sequence[Block], m: int) -> Sample:
    """Takes the median of some replays of a graph over all blocks and inputs."""
    shape = (m, HIDDEN)
    inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(DRAWS)]

    def call(block: Block, x: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: block(x)

    return _median_of([call(block, x) for x in inputs for block in blocks])


def of_transformers(dense: Sequence[Block], m: int) -> tuple[str, Sample]:
    """Their fastest implementation, and its times."""
    names = ("grouped_mm", "batched_mm") if m <= _FEW_TOKENS else ("grouped_mm",)
    found: list[tuple[float, str, Sample]] = []
    for name in names:
        for block in dense:
            block.block.experts.config._experts_implementation = name  # type: ignore[attr-defined]
        with suppress(RuntimeError, KeyError):
            sample = sampled(dense, m)
            found.append((sample(REPLAYS), name, sample))
    _, name, sample = min(found, key=lambda one: one[0])
    return name, sample


def served_by(stack: ExpertStack, m: int) -> str:
    """The config that serves m tokens."""
    place, biased = place_of(stack.packed_codes.device), stack.bias is not None
    plan = bound_experts(stack.spec, stack.dtype, biased, place)
    index, _ = plan.kernel_of(m)
    return str(plan.dispatches[index].config)


def row_of(sides: dict[str, Sample]) -> dict[str, Any]:
    """Medians of all sides, which take turns, and how often ours, the first, fits into each."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, sample in sides.items():
            taken[name].append(sample(REPLAYS))
    row: dict[str, Any] = {name: statistics.median(times) for name, times in taken.items()}
    for name, times in list(taken.items())[1:]:
        ratio = paired_ratio(times, taken["us"])
        row[name.replace("_us", "_ratio")] = [ratio.ratio, ratio.low, ratio.high]
    return {**row, "samples_us": taken}


def main() -> None:
    """Measures, prints a line a point, and writes all samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--m", default="1,64,1024")
    parser.add_argument("--format", default="mxfp4,int4g128")
    parser.add_argument("--table", help="a tuned table; by default what serves here")
    parser.add_argument("--peer", type=Path, help="folder in which humming-kernels is installed")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device, rows = cuda_devices()[0], []
    peer = None if arguments.peer is None else ExpertsPeer(arguments.peer.resolve())
    with torch.inference_mode():
        dense = [theirs(seed, "grouped_mm") for seed in range(COPIES)]
        for format in arguments.format.split(","):
            blocks = [ours(format, seed) for seed in range(COPIES)]
            if peer is not None:
                peer.open_blocks(SIZES, format)
            for m in map(int, arguments.m.split(",")):
                for block in blocks:
                    block.prepare(arguments.table, m)
                first = blocks[0].experts
                name, dense_sample = of_transformers(dense, m)
                sides = {"us": sampled(blocks, m), "transformers_us": dense_sample}
                if peer is not None:
                    peer.prepare_routed(m)
                    sides["peer_us"] = peer.sample
                row = {"format": format, "m": m, "transformers": name, **row_of(sides)}
                row["configs"] = [served_by(s, m) for s in (first.up, first.down)]
                rows.append(row)
                print(json.dumps({k: v for k, v in row.items() if k != "samples_us"}), flush=True)
                if arguments.out:
                    text = {**provenance(device), "sizes": SIZES, "rows": rows}
                    arguments.out.write_text(json.dumps(text, indent=1))


if __name__ == "__main__":
    main()
