"""Layers to plans: one plan for all layers of a shape, bound at the first asking. What a plan does
is plan.py."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from pathlib import Path

import torch

from humming.dispatch.intervals import TunedTable
from humming.dispatch.sources import load_table
from humming.errors import HummingError
from humming.plan import Place, Plan
from humming.serving.layer_spec import LayerSpec
from humming.serving.operands import check_dtype
from humming.spec.problem import Problem
from humming.state import ACTIVATIONS
from humming.version import require_alone

_Key = tuple[LayerSpec, torch.dtype, bool, Place]

_plans: dict[_Key, Plan] = {}
_plans_lock = threading.Lock()


def bound(spec: LayerSpec, dtype: torch.dtype, bias: bool, place: Place) -> Plan:
    """The plan by which `spec` serves activations of `dtype` at `place`, bound at the first asking.

    One for all layers of a shape. A named table that is gone, a default one that is damaged, or a
    database that cannot be asked, costs a warning, not the service: the heuristic serves.
    """
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


def bind(
    spec: LayerSpec,
    dtype: torch.dtype,
    bias: bool,
    place: Place,
    table: str | Path | TunedTable | None,
) -> tuple[LayerSpec, Plan]:
    """Binds anew with `table` (None: the current default one): the spec that names it, its plan.

    Raises TableError where the table cannot be used, LayoutError on another `dtype`.
    """
    check_dtype(dtype, spec)
    loaded = load_table(table)
    named = None if table is None or loaded is None or loaded.path is None else str(loaded.path)
    spec = replace(spec, table=named)
    return spec, _bind((spec, dtype, bias, place), loaded)


def _bind(key: _Key, table: TunedTable | None) -> Plan:
    require_alone()
    spec, dtype, bias, place = key
    name = ACTIVATIONS[dtype]
    problem = Problem(
        spec.format,
        n=spec.n,
        k=spec.k,
        m=0,
        activation_dtype=name,
        output_dtype=name,
        layout=spec.layout,
        bias=bias,
        act_order=spec.act_order,
        batch_invariant=place.batch_invariant,
    )
    plan = Plan(problem, place, table)
    with _plans_lock:
        _plans[key] = plan
    return plan
