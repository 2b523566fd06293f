"""The peer humming-kernels' grouped GEMM as a process, since it imports as `humming` too: it
reads requests as JSON lines and answers each with one. Nothing of ours may be imported here.

    PYTHONPATH=<folder of humming-kernels> python benchmarks/moe_peer_server.py

{"open": {"experts", "top_k", "n", "k", "down"}, "weight": {..}, "input": {..}} makes a layer, {"m":
m, "draws": d} a graph over so many routings, {"sample": replays} a time, {"warm": [m, ..]}
compiles what later calls need. Sorting rows, and quantizing x, are no part of the times.

{"block": {"experts", "top_k", "hidden", "width", "copies"}, "weight": {..}} makes whole blocks
(moe_peer_block.py), and the same requests then speak of those.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

NODES = 64


class Graph:
    """Calls as a CUDA graph of at least NODES nodes."""

    def __init__(self, calls: list[Callable[[], Any]]) -> None:
        calls = calls * -(-NODES // len(calls))
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            for call in calls:
                call()
        torch.cuda.synchronize()
        self._calls, self._graph = len(calls), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for call in calls:
                call()
        self._graph.replay()
        torch.cuda.synchronize()

    def sample(self, replays: int) -> float:
        """Median microseconds per call over replays."""
        times = []
        for _ in range(replays):
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            start.record()
            self._graph.replay()
            stop.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(stop) * 1e3 / self._calls)
        return float(statistics.median(times))


class Peer:
    """One layer of experts, tuned by its own heuristics."""

    def __init__(
        self, layer: dict[str, Any], weight: dict[str, Any], inputs: dict[str, Any] | None
    ) -> None:
        self._layer, self._inputs = layer, inputs
        made: Any = (
            importlib.import_module("humming.layer")
            .HummingLayer(
                shape_n=layer["n"],
                shape_k=layer["k"],
                num_experts=layer["experts"],
                pad_n_to_multiple=128,
                pad_k_to_multiple=128,
                weight_config=weight,
                input_config=inputs,
                torch_dtype=torch.bfloat16,
            )
            .cuda()
        )
        for parameter in made.parameters():
            importlib.import_module("humming.testing").random_fill_tensor(parameter)
        made.transform()
        self._made = made
        kind = importlib.import_module("humming.config").GemmType.INDEXED
        find = importlib.import_module("humming.tune").get_heuristics_config
        self._table = find(layer_config=made.humming_config, gemm_type=kind)
        self._kind, self._table_text = kind, json.dumps(self._table)
        self._compute = json.dumps({"gemm_type": kind.value})

    def block_of(self, m: int) -> int:
        """Rows to whose multiples an expert's are padded, for m tokens."""
        rows = m * self._layer["top_k"]
        return int(next(c["block_shape"][0] for low, high, c in self._table if low < rows <= high))

    def multiply(
        self,
        x: torch.Tensor,
        scale: torch.Tensor | None,
        sorted_ids: torch.Tensor,
        expert_ids: torch.Tensor,
        padded: torch.Tensor,
    ) -> Any:
        """One product of rows that are sorted by experts."""
        return self._made(
            inputs=x,
            input_scale=scale,
            sorted_ids=sorted_ids,
            expert_ids=expert_ids,
            num_tokens_padded=padded,
            expert_layout=None,
            compute_config=self._compute,
            tuning_config=self._table_text,
            top_k=1 if self._layer["down"] else self._layer["top_k"],
        )

    def calls(self, m: int, draws: int) -> list[Callable[[], Any]]:
        """A call for each of `draws` routings without balance."""
        layer, top_k = self._layer, self._layer["top_k"]
        rows = m * (top_k if layer["down"] else 1)
        x, scale = torch.randn(rows, layer["k"], dtype=torch.bfloat16, device="cuda"), None
        if self._inputs:
            make = importlib.import_module("humming.forward").may_process_input
            x, of_groups, of_rows = make(self._made.humming_config, x)
            scale = of_rows if of_groups is None else of_groups
        route = importlib.import_module("humming.testing").generate_random_moe_tensors

        def call(draw: int) -> Callable[[], Any]:
            torch.cuda.manual_seed(100 * m + draw)
            _, _, *sorted_rows = route(
                shape_m=m,
                num_experts=layer["experts"],
                top_k=top_k,
                gemm_type=self._kind,
                balanced=False,
                block_size_config=self.block_of(m),
                expert_max_tokens=None,
            )
            return lambda: self.multiply(x, scale, *sorted_rows)

        return [call(draw) for draw in range(draws)]

    def warm(self, m: int) -> None:
        """One call, which compiles what it needs."""
        self.calls(m, 1)[0]()
        torch.cuda.synchronize()


def opened(request: dict[str, Any]) -> Any:
    """What the request asks to make."""
    if "block" in request:
        blocks = importlib.import_module("moe_peer_block").Blocks
        return blocks(request["block"], request["weight"])
    return Peer(request["open"], request["weight"], request["input"])


def main() -> None:
    """Answers requests until the other side is gone."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever the peer prints is no answer
    peer: Any = None
    graph: Graph | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if "open" in request or "block" in request:
            peer = graph = None
            torch.cuda.empty_cache()
            peer = opened(request)
        if "warm" in request:
            for m in request["warm"]:
                peer.warm(m)
        elif "m" in request:
            graph = None
            graph = Graph(peer.calls(request["m"], request["draws"]))
        elif "sample" in request and graph is not None:
            answer["us"] = graph.sample(request["sample"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
