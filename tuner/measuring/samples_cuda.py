"""One sample on a GPU: a replay of a CUDA graph that walks over the weight sets. When and how often
is samples.py.

Host time is left out, the gaps between launches are not, as in a decode step that a serving engine
replays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tuner.measuring.policy import CUDA
from tuner.measuring.samples import Sample


def cuda_sample(calls: Sequence[Callable[[], object]], alike: bool = False) -> Sample:
    """Samples of `calls`, each one call on a weight set of its own, on the current device: a graph
    of at least as many nodes as the policy says. Each call is made once before, or the first one
    alone where they are `alike`, of one kernel."""
    warming = calls[:1] if alike else calls
    calls = list(calls) * -(-(CUDA.nodes or 1) // len(calls))
    graph = _captured(calls, warming)
    graph.replay()
    torch.cuda.synchronize()

    def sample() -> float:
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e3 / len(calls)

    return sample


def _captured(
    calls: Sequence[Callable[[], object]], warming: Sequence[Callable[[], object]]
) -> torch.cuda.CUDAGraph:
    """A graph of `calls`. Not by `torch.cuda.graph`, which first frees what is cached, and in older
    versions collects garbage: races capture many times."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        for call in warming:
            call()  # what is loaded or allocated once must not be captured
        side.synchronize()
        graph.capture_begin()
        try:
            for call in calls:
                call()
        finally:
            graph.capture_end()
    return graph
