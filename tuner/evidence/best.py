"""The command best: what serves one shape here, tuned or taken from a neighbour, and how fast it is
known or expected to be. It asks as the runtime does; nothing runs. Models are explaining.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from humming.dispatch.dispatcher import Dispatch, lookup, resolve
from humming.dispatch.intervals import Interval, TunedTable
from humming.dispatch.shipped import shipped_table
from humming.dispatch.sources import load_table
from humming.dispatch.transfer import Transfer
from humming.jit.identity import here
from humming.spec.config import config_to_dict
from humming.spec.device import Device
from humming.spec.problem import M_END, Problem


@dataclass(frozen=True)
class Best:
    """What serves `problem`; `measured` is its record, None where nothing was measured for it."""

    problem: Problem
    dispatch: Dispatch
    measured: Interval | None


def best(problem: Problem, m_values: tuple[int, ...], device: Device, db: str | None) -> list[Best]:
    """What serves `problem` on `device` at each of `m_values`, by the table that would serve.
    Raises LegalityError where nothing can."""
    table, shipped = load_table(db), shipped_table(device)
    dispatches = resolve(problem, here(device), table, shipped=shipped)
    found = []
    for m in m_values:
        dispatch = lookup(dispatches, m)
        record = None if dispatch.untuned else _record(dispatch, table, shipped)
        found.append(Best(problem.at(m), dispatch, record))
    return found


def _record(dispatch: Dispatch, *tables: TunedTable | None) -> Interval | None:
    intervals = (i for table in tables if table for entry in table.entries for i in entry.intervals)
    return next((i for i in intervals if i.record == dispatch.record), None)


def to_json(found: list[Best], device: Device) -> dict[str, Any]:
    """`best --json`."""
    return {"device": device.name, "problems": [_row(one) for one in found]}


def _row(one: Best) -> dict[str, Any]:
    problem, dispatch, measured = one.problem, one.dispatch, one.measured
    return {
        "format": problem.format,
        "n": problem.n,
        "k": problem.k,
        "m": problem.m,
        "source": dispatch.source,
        "tier": dispatch.tier,
        "config": config_to_dict(dispatch.config),
        "family": dispatch.config.family,
        "serves": [dispatch.m_low, dispatch.m_high],
        "record": dispatch.record,
        "measured_at_m": measured and measured.m,
        "us": measured and measured.us,
        "heuristic_us": measured and measured.heuristic_us,
        "transfer": transfer_json(dispatch.transfer),
    }


def transfer_json(transfer: Transfer | None) -> dict[str, Any] | None:
    """From which tuned problem a config was taken, and what to expect of it."""
    if transfer is None:
        return None
    of = transfer.problem
    return {
        "from": {"format": of.format, "n": of.n, "k": of.k, "m": of.m},
        "ratio": asdict(transfer.ratio),
        "regret": asdict(transfer.regret),
        "problems": transfer.problems,
        "layers": transfer.layers,
    }


def print_best(found: list[Best], console: Console) -> None:
    """For a person: two lines for each m."""
    for one in found:
        problem, dispatch = one.problem, one.dispatch
        high = "" if dispatch.m_high >= M_END else dispatch.m_high - 1
        console.print(
            f"{problem.format} n={problem.n} k={problem.k} m={problem.m}: {dispatch.config}, for m "
            f"{dispatch.m_low}..{high}"
        )
        console.print(f"  {_why(one)}")


def _why(one: Best) -> str:
    dispatch, measured = one.dispatch, one.measured
    if dispatch.source == "heuristic":
        return "heuristic: nothing was measured for it, and no neighbour is known to be better"
    text = f"{dispatch.transfer or dispatch.source}, {dispatch.tier}"
    text += f", record {str(dispatch.record)[:12]}"
    if measured is None:
        return text
    speedup = measured.heuristic_us / measured.us
    return (
        f"{text}: {measured.us:.1f} µs at m={measured.m}, {speedup:.2f} x as fast as the heuristic"
    )
