"""The peer humming-kernels' grouped GEMM as a process, since it imports as `humming` too: it
reads requests as JSON lines and answers each with one. Nothing of ours may be imported here.

    PYTHONPATH=<folder of humming-kernels> python benchmarks/moe_peer_server.py

{"open": {"experts", "top_k", "n", "k", "down"}, "weight": {..}, "input": {..}} makes a layer, {"m":
m, "ids": [[..], ..]} a graph over these routings, {"sample": replays} a time, {"warm": [m, ..]}
compiles what later calls need. Sorting rows, and quantizing x, are no part of the times.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from typing import Any

import torch

NODES = 64


class Peer:
    """One layer of experts, tuned by its own heuristics, and the graph of one m."""

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
        self._kind = importlib.import_module("humming.config").GemmType.INDEXED
        find = importlib.import_module("humming.tune").get_heuristics_config
        self._table = find(layer_config=made.humming_config, gemm_type=self._kind)
        self._graph: Any = None
        self._calls = 0

    def prepare(self, m: int, draws: int) -> None:
        """A graph of at least NODES calls that walks over `draws` routings without balance."""
        calls = self._routed(m, draws)
        calls = calls * -(-NODES // len(calls))
        self._graph, self._calls = None, len(calls)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            for call in calls:
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        graph.replay()
        torch.cuda.synchronize()
        self._graph = graph

    def _routed(self, m: int, draws: int) -> list[Any]:
        layer, top_k = self._layer, self._layer["top_k"]
        rows = m * (top_k if layer["down"] else 1)
        x = torch.randn(rows, layer["k"], dtype=torch.bfloat16, device="cuda")
        scale = None
        if self._inputs:
            make = importlib.import_module("humming.forward").may_process_input
            x, of_groups, of_rows = make(self._made.humming_config, x)
            scale = of_rows if of_groups is None else of_groups
        block = next(c["block_shape"][0] for low, high, c in self._table if low < m * top_k <= high)
        table, compute = json.dumps(self._table), json.dumps({"gemm_type": self._kind.value})
        route = importlib.import_module("humming.testing").generate_random_moe_tensors
        calls = []
        for draw in range(draws):
            torch.cuda.manual_seed(100 * m + draw)
            _, _, ids, experts, padded = route(
                shape_m=m,
                num_experts=layer["experts"],
                top_k=top_k,
                gemm_type=self._kind,
                balanced=False,
                block_size_config=block,
                expert_max_tokens=None,
            )
            calls.append(
                lambda ids=ids, experts=experts, padded=padded: self._made(
                    inputs=x,
                    input_scale=scale,
                    sorted_ids=ids,
                    expert_ids=experts,
                    num_tokens_padded=padded,
                    expert_layout=None,
                    compute_config=compute,
                    tuning_config=table,
                    top_k=1 if layer["down"] else top_k,
                )
            )
        return calls

    def warm(self, m: int) -> None:
        """One call, which compiles what it needs."""
        self._routed(m, 1)[0]()
        torch.cuda.synchronize()

    def sample(self, replays: int) -> float:
        """Median microseconds per call over replays of the graph."""
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


def main() -> None:
    """Answers requests until the other side is gone."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever the peer prints is no answer
    peer: Peer | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if "open" in request:
            peer = None
            torch.cuda.empty_cache()
            peer = Peer(request["open"], request["weight"], request["input"])
        assert peer is not None
        if "warm" in request:
            for m in request["warm"]:
                peer.warm(m)
        elif "m" in request:
            peer.prepare(request["m"], request["draws"])
        elif "sample" in request:
            answer["us"] = peer.sample(request["sample"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
