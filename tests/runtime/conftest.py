"""A table of this machine for the runtime's tests."""

from dataclasses import replace

import pytest

from humming.dispatch.heuristics import heuristic
from humming.dispatch.tables import Interval, TableEntry, serve_intervals, write_generation
from humming.jit.identity import here
from humming.spec.problem import Problem


@pytest.fixture
def make_table(tmp_path):
    """`make_table(n, k, ms=..., identity={...}, problem={...}, **knobs)` -> a written table.

    Its configs are the heuristic ones with `knobs` changed, so that they differ from what would
    serve anyway.
    """

    def make(n, k, ms=(1, 16), identity=None, problem=None, **knobs):
        machine = replace(here(), **(identity or {}))
        layer = Problem("int4g128", n=n, k=k, m=0, **{**FP32, **(problem or {})})
        configs = {m: replace(heuristic(layer.at(m), machine.device), **knobs) for m in ms}
        intervals = tuple(
            Interval(low, high, m, config, 1.0, 2.0, f"r{m}")
            for low, high, m, config in serve_intervals(configs.items())
        )
        return write_generation([TableEntry(machine, layer, intervals)], tmp_path / "tables")

    return make


FP32 = {"activation_dtype": "fp32", "output_dtype": "fp32"}
