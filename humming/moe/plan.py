"""ExpertsPlan: the experts of one layer bound to this machine. Dense layers are humming/plan.py."""

from __future__ import annotations

import threading
import warnings
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from humming.dispatch.intervals import TunedTable
from humming.dispatch.sources import load_table
from humming.errors import HummingError, LaunchError
from humming.ledger import Tally, tally
from humming.moe.activations import ExpertActivation
from humming.moe.rows import Rows
from humming.plan import SCRATCH, Place, Plan, scratch_on_stream
from humming.quantize.experts import PackedExperts
from humming.spec.canonical import canonical_json
from humming.spec.problem import Problem
from humming.spec.routing import UNIFORM
from humming.state import ACTIVATIONS
from humming.version import require_alone

_MOST_TALLIES = 4096


@dataclass(frozen=True)
class ExpertsSpec:
    """What the op's string says: packed experts without their tensors, what falls on them, and the
    table that serves them."""

    format: str
    experts: int
    n: int
    k: int
    layout: str
    scale_dtype: str
    act_order: bool = False
    top_k: int = 1
    routing: str = UNIFORM
    table: str | None = None

    @property
    def text(self) -> str:
        """Canonical JSON: the op's `layer` argument."""
        return _text(self)

    def of_top_k(self, top_k: int) -> ExpertsSpec:
        """This spec of tokens that have so many experts; itself where it says so."""
        return self if top_k == self.top_k else replace(self, top_k=top_k)

    def problem(self, dtype: torch.dtype, bias: bool, batch_invariant: bool = False) -> Problem:
        """What is to be computed for activations of `dtype`, its m open."""
        name = ACTIVATIONS[dtype]
        return Problem(
            self.format,
            n=self.n,
            k=self.k,
            m=0,
            activation_dtype=name,
            output_dtype=name,
            layout=self.layout,
            op="moe",
            bias=bias,
            batch_invariant=batch_invariant,
            act_order=self.act_order,
            experts=self.experts,
            top_k=self.top_k,
            routing=self.routing,
        )


@lru_cache(maxsize=4096)
def _text(spec: ExpertsSpec) -> str:
    return canonical_json(spec)


class ExpertsPlan(Plan):
    """How the experts of one layer are served at one place for one activation type."""

    def __init__(self, problem: Problem, place: Place, table: TunedTable | None) -> None:
        super().__init__(problem, place, table)
        self._tallies: dict[tuple[int, bool], Tally] = {}

    def describe(self) -> str:
        """Where the configs come from, and for which routing where it is another."""
        told = super().describe()
        records = {dispatch.record for dispatch in self.dispatches if dispatch.record}
        routings = {
            str(entry.problem.routing)
            for entry in (self.table.entries if self.table else ())
            if any(interval.record in records for interval in entry.intervals)
        }
        others = sorted(routings - {str(self.problem.routing)})
        if not others:
            return told
        return f"{told}; tuned for routing {', '.join(others)}, here {self.problem.routing}"

    def kernel_of(self, tokens: int) -> tuple[int, Any]:
        """The interval of so many tokens, and its kernel."""
        bound = self._bound
        index = bisect_right(bound.lows, max(tokens, 1)) - 1
        return index, bound.kernels[index] or self._load(bound, index)

    def silu_quantizer(self, tokens: int) -> Any:
        """What makes codes of silu(gate) * up for the kernel that serves so many tokens, in one
        launch; None where that multiplies no codes of its own."""
        return None if self.gpu < 0 else _silu_quantizer_of(self.kernel_of(tokens)[1])

    def load_silu(self) -> None:
        """Compiles and loads those of all kernels that are loaded."""
        for kernel in self._bound.kernels:
            found = None if kernel is None or self.gpu < 0 else _silu_quantizer_of(kernel)
            if found is not None:
                found.function(self.gpu)

    def run_experts(
        self,
        x: torch.Tensor,
        weight: PackedExperts,
        bias: torch.Tensor | None,
        rows: Rows,
        out: torch.Tensor | None = None,
        silu: bool = False,
    ) -> torch.Tensor:
        """`out[rows, n]` in x's dtype, where row r is `x[its row] @ w[its expert].T + bias[its
        expert]`. x and out have contiguous rows; `bias` is fp32 [experts, n]. With `silu`, where
        `silu_quantizer` gives one, x has 2k columns, and silu(its first half) times its second is
        multiplied."""
        if out is None:
            out = x.new_empty(rows.count, weight.n)
        if rows.count == 0:
            return out
        bound, (index, kernel) = self._bound, self.kernel_of(rows.tokens)
        if self.gpu < 0:
            needed = kernel.workspace_bytes(
                rows.count, weight.n, weight.k, self.threads, weight.experts
            )
            scratch = SCRATCH.of(needed)
        else:
            scratch = scratch_on_stream(x, kernel.experts_workspace_bytes(rows, weight))
        try:
            if silu:
                made = _silu_quantizer_of(kernel).enqueue(x, scratch)
                kernel.launch_quantized_experts(made, weight, bias, out, rows)
            else:
                kernel.launch_experts(x, weight, bias, out, rows, scratch, self.threads)
        except LaunchError as error:
            self._refuse(bound.dispatches[index], error)
            if silu and self.silu_quantizer(rows.tokens) is None:
                x, silu = ExpertActivation()(x), False
            return self.run_experts(x, weight, bias, rows, out, silu)
        self._tally_of(rows.tokens, bound.dispatches[index].untuned)[0] += 1
        return out

    def _tally_of(self, tokens: int, missed: bool) -> Tally:
        """The number that counts calls of so many tokens; see ledger.py."""
        found = self._tallies.get((tokens, missed))
        if found is None:
            if len(self._tallies) >= _MOST_TALLIES:
                self._tallies.clear()
            problem = self.problem.at(tokens)
            found = self._tallies[tokens, missed] = tally(self.identity, problem, missed)
        return found


def _silu_quantizer_of(kernel: Any) -> Any:
    own = kernel.input
    if own is None or own.recipe.output == "numbers" or not own.recipe.format.dynamic:
        return None
    from humming.jit.cuda.input_quantizer import input_quantizer  # CUDA alone

    return input_quantizer(replace(own.recipe, silu_and_mul=True))


_Key = tuple[ExpertsSpec, torch.dtype, bool, Place]
_plans: dict[_Key, ExpertsPlan] = {}
_lock = threading.Lock()


def bound_experts(spec: ExpertsSpec, dtype: torch.dtype, bias: bool, place: Place) -> ExpertsPlan:
    """The plan by which `spec` serves activations of `dtype` at `place`, bound at the first asking;
    a table that cannot be used costs a warning, not the service."""
    key = (spec, dtype, bias, place)
    plan = _plans.get(key)
    if plan is not None:
        return plan
    try:
        table = load_table(spec.table)
    except HummingError as error:
        warnings.warn(f"{error}; the heuristic serves instead", RuntimeWarning, stacklevel=3)
        table = None
    return _bind(key, table)


def bind_experts(
    spec: ExpertsSpec, dtype: torch.dtype, bias: bool, place: Place, table: Any
) -> tuple[ExpertsSpec, ExpertsPlan]:
    """Binds anew with `table` (None: the current default one): the spec that names it, its plan."""
    loaded = load_table(table)
    named = None if table is None or loaded is None or loaded.path is None else str(loaded.path)
    spec = replace(spec, table=named)
    return spec, _bind((spec, dtype, bias, place), loaded)


def _bind(key: _Key, table: TunedTable | None) -> ExpertsPlan:
    require_alone()
    spec, dtype, bias, place = key
    plan = ExpertsPlan(spec.problem(dtype, bias, place.batch_invariant), place, table)
    with _lock:
        _plans[key] = plan
    return plan
