"""Projections of experts that `benchmarks.moe` compares, and calls of our kernels on them. What is
compared with what is moe.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from humming.jit.cache import compiled
from humming.jit.load import load
from humming.moe.routing import draw_ids
from humming.moe.rows import Rows
from humming.quantize import PackedExperts, pack_experts
from humming.quantize.drawn import drawn
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.layouts import layout_for
from humming.spec.problem import Problem
from humming.spec.routing import UNIFORM
from tuner.worker.placing import Places

DRAWS = 12
"""Routings that a walk goes through."""


@dataclass(frozen=True)
class Layer:
    """A projection of the experts of a public model; `down`: each routed row has its own x."""

    experts: int
    top_k: int
    n: int
    k: int
    down: bool = False


LAYERS = {
    "dsv3_tp8_gateup": Layer(256, 8, 512, 7168),
    "dsv3_tp8_down": Layer(256, 8, 7168, 256, True),
    "qwen30b_gateup": Layer(128, 8, 1536, 2048),
    "qwen30b_down": Layer(128, 8, 2048, 768, True),
    "gptoss120_gateup": Layer(128, 4, 5760, 2880),
}
"""Those of ../shared/anchors/h200_moe.json."""

OTHERS = {
    "qwen30b_tp8_gateup": Layer(128, 8, 192, 2048),
    "next80b_tp4_gateup": Layer(512, 10, 256, 2048),
    "next80b_tp4_down": Layer(512, 10, 2048, 128, True),
    "kimi_tp8_gateup": Layer(384, 8, 512, 7168),
    "gptoss20_gateup": Layer(32, 4, 5760, 2880),
    "olmoe_gateup": Layer(64, 8, 2048, 2048),
}
"""A sample of experts 32 to 512 and n from 192."""

M_VALUES = (1, 16, 64, 256, 1024, 4096)


def problem_of(
    layer: Layer, format: str, m: int, device: Device, routing: str = UNIFORM
) -> Problem:
    """What is multiplied."""
    return Problem(
        format,
        layer.n,
        layer.k,
        m,
        "bf16",
        "bf16",
        layout_for(device, format, "moe"),
        op="moe",
        experts=layer.experts,
        top_k=layer.top_k,
        routing=routing,
    )


def experts_of(layer: Layer, format: str, device: Device) -> PackedExperts:
    """Random experts on the current GPU, of which every fourth is alike."""
    draw = torch.Generator("cuda").manual_seed(1)
    few = [drawn(format, layer.n, layer.k, draw, torch.bfloat16) for _ in range(4)]
    packed = pack_experts(few, layout_for(device, format, "moe"), torch.bfloat16)
    order = torch.arange(layer.experts, device="cuda") % 4
    parts = {}
    for name, tensor in packed.tensors.items():  # torch gathers no 8-bit floats
        raw = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
        parts[name] = raw.index_select(0, order).view(tensor.dtype)
    return replace(packed.with_tensors(parts), experts=layer.experts)


class Ours:
    """Our side of one layer and format, on rows that fall as `routing` says."""

    def __init__(self, layer: Layer, format: str, device: Device, routing: str = UNIFORM) -> None:
        self.layer, self.format, self.device = layer, format, device
        self._routing, self._experts = routing, experts_of(layer, format, device)

    def calls(self, m: int, config: KernelConfig, whole: bool = False) -> list[Callable[[], Any]]:
        """One call for each routing, by `config`. x is quantized before, where the format does
        that, unless `whole`."""
        layer, weight = self.layer, self._experts
        problem = problem_of(layer, self.format, m, self.device, self._routing)
        kernel: Any = load(compiled(config, problem, self.device), self.device)
        count = m * (layer.top_k if layer.down else 1)
        x = torch.randn(count, layer.k, device="cuda", dtype=torch.bfloat16)
        draw = torch.Generator("cuda").manual_seed(m)
        ids = [draw_ids(self._routing, m, layer.experts, layer.top_k, draw) for _ in range(DRAWS)]
        every = [Rows.indexed(own, shared=not layer.down) for own in ids]
        size = kernel.experts_workspace_bytes(every[0], weight)
        places = Places(x.device, m)
        operands = [
            (places.copy(x), places.empty((m * layer.top_k, layer.n), x.dtype), room)
            for room in x.new_empty((_places_of(x), size), dtype=torch.uint8).unbind()
        ]

        def call(rows: Rows, x: torch.Tensor, out: torch.Tensor, room: torch.Tensor) -> Any:
            if whole or kernel.input is None:
                return lambda: kernel.launch_experts(x, weight, None, out, rows, room)
            made = kernel.input.enqueue(x, room)
            return lambda: kernel.launch_quantized_experts(made, weight, None, out, rows)

        return [call(rows, *operands[i % len(operands)]) for i, rows in enumerate(every)]


def _places_of(x: torch.Tensor) -> int:
    """In how many places in memory x and out lie, where calls are so short that it matters."""
    return 4 if x.nbytes < 1 << 20 else 1
