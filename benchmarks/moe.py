"""Layers of experts on a GPU: our grouped kernels and humming-kernels', in turn on one device.

    python -m benchmarks.moe --peer DIR --out FILE [--layers a,b] [--m 1,16] [--format mxfp4]
                             [--tune 60s] [--seconds 120]

m counts tokens; each call has one of twelve random routings without balance. Sorting rows, and
quantizing x, are no part of the times. A side's time is the median of its graph's replays, sides
take turns. Where `--tune` is given, each point is tuned from an empty database for its share of it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.gemm_formats import compared
from benchmarks.gemm_peer import PeerProcess
from benchmarks.gemm_sides import _median_of
from benchmarks.provenance import provenance
from humming.dispatch.heuristics import heuristic
from humming.errors import HummingError
from humming.jit.cache import compiled
from humming.jit.detect import cuda_devices
from humming.jit.load import load
from humming.moe.routing import draw_ids
from humming.moe.rows import Rows
from humming.quantize import PackedExperts, pack_experts
from humming.quantize.drawn import drawn
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.layouts import layout_for
from humming.spec.problem import Problem
from tuner.planning.budget import parse_duration

DRAWS, ROUNDS, REPLAYS = 12, 5, 3
_SERVER = Path(__file__).with_name("moe_peer_server.py")


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
M_VALUES = (1, 16, 64, 256, 1024, 4096)


def problem_of(layer: Layer, format: str, m: int, routing: str, device: Device) -> Problem:
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
    parts = {name: tensor.index_select(0, order) for name, tensor in packed.tensors.items()}
    return replace(packed.with_tensors(parts), experts=layer.experts)


class Ours:
    """Our side of one layer and format."""

    def __init__(self, layer: Layer, format: str, routing: str, device: Device) -> None:
        self._layer, self._format, self._device = layer, format, device
        self._routing, self._experts = routing, experts_of(layer, format, device)

    def calls(self, m: int, config: KernelConfig) -> list[Callable[[], Any]]:
        """One call for each routing, by `config`."""
        layer, weight = self._layer, self._experts
        problem = problem_of(layer, self._format, m, self._routing, self._device)
        kernel: Any = load(compiled(config, problem, self._device), self._device)
        x = torch.randn(
            m * (layer.top_k if layer.down else 1), layer.k, device="cuda", dtype=torch.bfloat16
        )
        out = x.new_empty(m * layer.top_k, layer.n)
        draw = torch.Generator("cuda").manual_seed(m)
        every = []
        for _ in range(DRAWS):
            ids = draw_ids(self._routing, m, layer.experts, layer.top_k, draw)
            every.append(Rows.indexed(ids, shared=not layer.down))

        def call(rows: Rows) -> Callable[[], Any]:
            room = x.new_empty(kernel.experts_workspace_bytes(rows, weight), dtype=torch.uint8)
            return lambda: kernel.launch_experts(x, weight, None, out, rows, room)

        return [call(rows) for rows in every]

    def sample(self, m: int, config: KernelConfig) -> Callable[[int], float]:
        """Takes the median of some replays."""
        return _median_of(self.calls(m, config))


class ExpertsPeer(PeerProcess):
    """The peer's grouped GEMM."""

    server = _SERVER

    def open_layer(self, layer: Layer, format: str) -> None:
        """Makes one layer."""
        named = compared(format)
        self._ask({"open": vars(layer), "weight": named.peer, "input": named.peer_inputs})

    def start_warming_layer(self, layer: Layer, format: str, m_values: list[int]) -> None:
        """Asks for the kernels of these m."""
        named = compared(format)
        asked = {"open": vars(layer), "weight": named.peer, "input": named.peer_inputs}
        self._send({**asked, "warm": m_values})

    def prepare_routed(self, m: int) -> None:
        """Makes the graph of one m."""
        self._ask({"m": m, "draws": DRAWS})


def tuned(
    ours: Ours, m: int, first: KernelConfig, problem: Problem, seconds: float
) -> KernelConfig:
    """The fastest of the first candidates by a few replays, in so many seconds."""
    from random import Random

    from search_spaces.load import load_spaces
    from tuner.searching.candidates import legal_candidates
    from tuner.searching.compile_pool import cores

    device = ours._device
    every = list(legal_candidates(problem, device, load_spaces()).configs.values())
    Random(m).shuffle(every)
    deadline = time.monotonic() + seconds
    best, best_us = first, ours.sample(m, first)(REPLAYS)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(cores()) as pool:
        for start in range(0, len(every), 2 * cores()):
            batch = every[start : start + 2 * cores()]
            list(pool.map(lambda config: _compiled(config, problem, device), batch))
            for config in batch:
                if time.monotonic() > deadline:
                    return best
                with suppress(HummingError):
                    us = ours.sample(m, config)(1)
                    if us < best_us:
                        best, best_us = config, us
    return best


def _compiled(config: KernelConfig, problem: Problem, device: Device) -> None:
    with suppress(HummingError):
        compiled(config, problem, device)


def measure(arguments: argparse.Namespace, device: Device) -> Iterator[dict[str, Any]]:
    """A row for each layer, format and m, while there is time."""
    deadline = time.monotonic() + parse_duration(arguments.seconds)
    m_values = [int(m) for m in arguments.m.split(",")]
    formats, names = arguments.format.split(","), arguments.layers.split(",")
    points = len(m_values) * len(formats) * len(names)
    share = parse_duration(arguments.tune) / points if arguments.tune else 0.0
    warming = _warm(arguments.peer, names, formats, m_values) if arguments.peer else []
    peer = ExpertsPeer(arguments.peer) if arguments.peer else None
    for number, (format, name) in enumerate((f, n) for f in formats for n in names):
        layer = LAYERS[name]
        ours = Ours(layer, format, arguments.routing, device)
        configs = {}
        for m in m_values:
            problem = problem_of(layer, format, m, arguments.routing, device)
            first = heuristic(problem, device)
            configs[m] = tuned(ours, m, first, problem, share) if share else first
        if peer is not None:
            if number < len(warming):
                warming[number].wait(max(1.0, deadline - time.monotonic()))
                warming[number].close()
            peer.open_layer(layer, format)
        for m in m_values:
            if time.monotonic() > deadline:
                return
            yield _point(ours, peer, layer, name, format, m, configs[m])


def _warm(
    folder: Path, names: list[str], formats: list[str], m_values: list[int]
) -> list[ExpertsPeer]:
    """The peer's kernels, compiled by a process a layer while we begin."""
    peers = []
    for format in formats:
        for name in names:
            peer = ExpertsPeer(folder)
            peer.start_warming_layer(LAYERS[name], format, m_values)
            peers.append(peer)
    return peers


def _point(
    ours: Ours,
    peer: ExpertsPeer | None,
    layer: Layer,
    name: str,
    format: str,
    m: int,
    config: KernelConfig,
) -> dict[str, Any]:
    """Both sides in turn."""
    sample = ours.sample(m, config)
    mine, theirs = [], []
    if peer is not None:
        peer.prepare_routed(m)
    for _ in range(ROUNDS):
        mine.append(sample(REPLAYS))
        if peer is not None:
            theirs.append(peer.sample(REPLAYS))
    row = {"layer": name, **vars(layer), "format": format, "m": m, "config": str(config)}
    row |= {"family": config.family, "us": _median(mine), "samples_us": mine}
    if theirs:
        ratios = sorted(b / a for a, b in zip(mine, theirs, strict=True))
        row |= {"peer_us": _median(theirs), "peer_samples_us": theirs}
        row |= {"ratio": _median(ratios), "least_ratio": ratios[0], "most_ratio": ratios[-1]}
    return row


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Geometric means of the peer's time over ours: m up to 64, from 256 on, all; and the least."""
    found = {}
    compared_rows = [row for row in rows if "ratio" in row]
    for title, wanted in (
        ("m <= 64", lambda row: row["m"] <= 64),
        ("m >= 256", lambda row: row["m"] >= 256),
        ("all", lambda row: True),
    ):
        logs = [math.log(row["ratio"]) for row in compared_rows if wanted(row)]
        if logs:
            found[title] = math.exp(sum(logs) / len(logs))
    if compared_rows:
        found["least"] = min(row["ratio"] for row in compared_rows)
    return found


def main() -> None:
    """Measures, prints a line a point, and writes all samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument("--m", default=",".join(map(str, M_VALUES)))
    parser.add_argument("--format", default="mxfp4,int4g128")
    parser.add_argument("--routing", default="uniform")
    parser.add_argument("--tune", help="seconds of tuning in all, such as 120s")
    parser.add_argument("--seconds", default="10m")
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = cuda_devices()[0]
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    with torch.inference_mode():
        for row in measure(arguments, device):
            rows.append(row)
            shown = {
                key: row.get(key) for key in ("layer", "format", "m", "us", "peer_us", "ratio")
            }
            print(
                f"{time.monotonic() - started:6.1f}", json.dumps(shown), row["config"], flush=True
            )
            if arguments.out:
                text = {**provenance(device), "rows": rows, "summary": _by_format(rows)}
                arguments.out.write_text(json.dumps(text, indent=1))
    print(json.dumps(_by_format(rows), indent=1))


def _by_format(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    formats = dict.fromkeys(row["format"] for row in rows)
    return {f: summary([row for row in rows if row["format"] == f]) for f in formats}


if __name__ == "__main__":
    main()
