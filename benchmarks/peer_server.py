"""The peer humming-kernels as a process of its own, since it imports as `humming` too: it reads
requests as JSON lines and answers each with one. Nothing of ours may be imported here.

    PYTHONPATH=<folder of humming-kernels> python benchmarks/peer_server.py

{"open": [n, k], "weight": {..}, "input": {..}} makes layers, {"m": m} a graph, {"sample": replays}
a time, and {"warm": [[n, k, m], ..], "weight": {..}, "input": {..}} compiles what later calls will
need. Where the input is quantized, null elsewhere, that is no part of the times.
"""

from __future__ import annotations

import copy
import importlib
import json
import statistics
import sys
from typing import Any

import torch

COLD_BYTES, NODES = 256 * 2**20, 64


class Peer:
    """The layers of one shape, and the graph of one m. It is tuned by its own heuristics."""

    def __init__(
        self, n: int, k: int, weight: dict[str, Any], inputs: dict[str, Any] | None
    ) -> None:
        layer: Any = (
            importlib.import_module("humming.layer")
            .HummingLayer(
                shape_n=n,
                shape_k=k,
                weight_config=weight,
                input_config=inputs,
                torch_dtype=torch.bfloat16,
            )
            .cuda()
        )
        for parameter in layer.parameters():
            importlib.import_module("humming.testing").random_fill_tensor(parameter)
        layer.transform()
        find = importlib.import_module("humming.tune").get_heuristics_config
        self._table = json.dumps(find(layer.humming_config))
        size = sum(parameter.nbytes for parameter in layer.parameters())
        sets = max(4, min(64, -(-COLD_BYTES // size)))
        self._layers = [layer, *(copy.deepcopy(layer) for _ in range(sets - 1))]
        self._k, self._quantized = k, inputs is not None
        self._graph: Any = None

    def call(self, m: int) -> None:
        """One call, which compiles what it needs."""
        x, scale = self._rows(m)
        self._layers[0](x, input_scale=scale, tuning_config=self._table)
        torch.cuda.synchronize()

    def _rows(self, m: int) -> tuple[torch.Tensor, Any]:
        """Rows of x as its layers take them, and their scales."""
        x = torch.randn(m, self._k, dtype=torch.bfloat16, device="cuda")
        if not self._quantized:
            return x, None
        make = importlib.import_module("humming.forward").may_process_input
        made, of_groups, of_rows = make(self._layers[0].humming_config, x)
        return made, of_rows if of_groups is None else of_groups

    def prepare(self, m: int) -> None:
        """A graph of at least NODES calls that walks over the layers."""
        x, scale = self._rows(m)
        calls = self._layers * -(-NODES // len(self._layers))
        self._graph, self._calls = None, len(calls)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            for layer in calls:
                layer(x, input_scale=scale, tuning_config=self._table)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for layer in calls:
                layer(x, input_scale=scale, tuning_config=self._table)
        graph.replay()
        torch.cuda.synchronize()
        self._graph = graph

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
        request, answer = json.loads(line), {}
        if "warm" in request:
            for n, k, m in request["warm"]:
                if peer is None:  # all are of one shape
                    peer = Peer(n, k, request["weight"], request["input"])
                peer.call(m)
        elif "open" in request:
            peer = None
            torch.cuda.empty_cache()
            n, k = request["open"]
            peer = Peer(n, k, request["weight"], request["input"])
        elif peer is not None and "m" in request:
            peer.prepare(request["m"])
        elif peer is not None:
            answer["us"] = peer.sample(request["sample"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
