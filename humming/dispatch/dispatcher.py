"""One layer's tuned entries and heuristics as a gap-free list of dispatches, and its look-up by m.

Pure: no files, no compiling, no torch. A tuned interval serves where it was proved; then what the
package itself ships; then what neighbours.py may take from tuned neighbours; the heuristic serves
the rest.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from humming.dispatch.heuristics import heuristic_intervals
from humming.dispatch.intervals import Interval, TableEntry, TunedTable
from humming.dispatch.invariant import invariant_intervals
from humming.dispatch.neighbours import offers
from humming.dispatch.seen import as_seen
from humming.dispatch.transfer import Transfer
from humming.errors import LegalityError, TableError
from humming.spec.combinations import why_not
from humming.spec.config import FAMILIES, KernelConfig
from humming.spec.device import Device
from humming.spec.identity import RULES, TIERS, Identity, Tier, differences, tier
from humming.spec.invariance import sum_order
from humming.spec.legality import Violation, config_violations, problem_violations
from humming.spec.problem import M_END, Problem
from humming.spec.routing import UNIFORM, distance

Source = Literal["tuned", "nearest", "shipped", "transfer", "heuristic"]


@dataclass(frozen=True)
class Dispatch:
    """`config` serves every m of [m_low, m_high).

    source    "tuned": proved for this interval. "nearest": proved for the same layer with or
              without a bias, or with another routing. "shipped": of the package's own table for
              this device. "transfer": taken from a tuned neighbour. "heuristic": not measured here.
    tier      how well the record's identity fits this machine; None for the heuristic.
    record    the winner's id in the store; None for the heuristic.
    transfer  whose config it is, and what to expect of it; None where it was not taken.
    """

    config: KernelConfig
    source: Source
    tier: Tier | None
    record: str | None
    m_low: int
    m_high: int
    transfer: Transfer | None = None

    @property
    def untuned(self) -> bool:
        """Whether tuning this problem may gain something: nothing was measured for it."""
        return self.source in ("transfer", "heuristic")


@dataclass(frozen=True)
class _Claim:
    """An interval that a tuned record may serve; claims that come first keep what they take."""

    low: int
    high: int
    source: Source
    tier: Tier
    interval: Interval


def resolve(
    problem: Problem,
    here: Identity,
    table: TunedTable | None,
    refused: frozenset[KernelConfig] = frozenset(),
    shipped: TunedTable | None = None,
) -> list[Dispatch]:
    """Dispatches of `problem` (its m does not count) on the machine `here`.

    Sorted, disjoint, without a gap over [0, 2**31), each config legal there, whatever its family.
    What `table` leaves open is served by `shipped`, then by neighbours of either, then by the
    heuristic.
    Tuned configs of `refused`, which failed when they were tried, are passed over.
    Raises LegalityError where no family can serve the problem on this device at all, TableError
    where `table` knows the layer in another layout only.
    """
    _check_servable(problem, here)
    table = as_seen(table, here) if table else None
    shipped = as_seen(shipped, here) if shipped else None
    entries = _matching(problem, here, table.entries if table else ())
    ours = _matching(problem, here, shipped.entries if shipped else (), other_layouts=True)
    claims: Iterable[_Claim] = itertools.chain(
        _claims(problem, here, entries, refused),
        (replace(claim, source="shipped") for claim in _claims(problem, here, ours, refused)),
    )
    spans = None
    if problem.batch_invariant:
        claims, spans = _of_one_order(problem, here, list(claims))
    taken: list[Dispatch] = []
    for claim in claims:
        taken += [_tuned(claim, low, high) for low, high in _free(taken, claim.low, claim.high)]
        taken.sort(key=lambda dispatch: dispatch.m_low)
    taken += _transferred(problem, here, [table, shipped], taken, refused)
    taken.sort(key=lambda dispatch: dispatch.m_low)
    for low, high, config in spans or heuristic_intervals(problem, here.device):
        taken += [
            Dispatch(config, "heuristic", None, None, free_low, free_high)
            for free_low, free_high in _free(taken, low, high)
        ]
        taken.sort(key=lambda dispatch: dispatch.m_low)
    return _joined(taken)


def _transferred(
    problem: Problem,
    here: Identity,
    tables: Sequence[TunedTable | None],
    taken: Sequence[Dispatch],
    refused: frozenset[KernelConfig],
) -> list[Dispatch]:
    """What neighbours may serve of all that `taken` leaves open: those of the first table first, of
    a table those of the machine that fits best."""
    found: list[Dispatch] = []
    for table in tables:
        machines: dict[str, list[TableEntry]] = {}
        for entry in table.entries if table else ():
            machines.setdefault(entry.identity.id, []).append(entry)
        fits = {id: tier(entries[0].identity, here) for id, entries in machines.items()}
        for id in sorted(machines, key=lambda id: (TIERS.index(fits[id]), id)):
            if fits[id] != "none":
                served = sorted([*taken, *found], key=lambda dispatch: dispatch.m_low)
                gaps = _free(served, 0, M_END)
                found += [
                    Dispatch(
                        offer.interval.config,
                        "transfer",
                        fits[id],
                        offer.interval.record,
                        offer.low,
                        offer.high,
                        offer.transfer,
                    )
                    for offer in offers(problem, here.device, machines[id], gaps, refused)
                ]
    return found


def _of_one_order(
    problem: Problem, here: Identity, claims: list[_Claim]
) -> tuple[list[_Claim], list[tuple[int, int, KernelConfig]]]:
    """Those claims that add up as the one for the fewest rows does, and what serves the rest."""
    if not claims:
        return [], invariant_intervals(problem, here.device)
    base = min(claims, key=lambda claim: claim.interval.m).interval.config
    order = sum_order(base)
    alike = [claim for claim in claims if sum_order(claim.interval.config) == order]
    return alike, invariant_intervals(problem, here.device, base)


def lookup(dispatches: Sequence[Dispatch], m: int) -> Dispatch:
    """The dispatch whose interval holds `m`. Raises LegalityError on an m outside [0, 2**31)."""
    if type(m) is not int:
        raise LegalityError(f"m must be a whole number, but got {m!r}; give the tokens of a call")
    if not 0 <= m < M_END:
        raise LegalityError(f"`0 <= m < 2**31` must hold, but got m={m}; split the batch")
    return dispatches[bisect_right(dispatches, m, key=lambda dispatch: dispatch.m_low) - 1]


def why_unused(problem: Problem, here: Identity, table: TunedTable) -> str:
    """One phrase that tells the user why `table` does not serve `problem` on the machine `here`."""
    layer = _without_bias(problem)
    seen = as_seen(table, here).entries
    same = [entry for entry in seen if _without_bias(entry.problem) == layer]
    if not same:
        return "the table has no entry for this layer"
    unlike = min((differences(entry.identity, here) for entry in same), key=len)
    if not unlike:
        return "the table has no legal config for this layer"
    field, (theirs, ours) = next(iter(sorted(unlike.items(), key=_gravity)))
    return f"the table was tuned with {field} {_brief(theirs)}, but here it is {_brief(ours)}"


def why_unservable(problem: Problem, device: Device) -> str:
    """Why no family can serve `problem` on `device`, in one sentence; "" where one can."""
    nowhere = why_not(problem.format)
    if nowhere:
        return nowhere
    broken = [problem_violations(family, problem, device) for family in FAMILIES]
    return min(broken, key=_strangeness)[0].reason if all(broken) else ""


def _check_servable(problem: Problem, here: Identity) -> None:
    reason = why_unservable(problem, here.device)
    if reason:
        raise LegalityError(reason)


def _strangeness(broken: Sequence[Violation]) -> tuple[bool, bool, int]:
    """Sorts the families of the device at hand first: their reasons are what the user can mend."""
    ends = {violation.rule.rpartition("_")[2] for violation in broken}
    return "device" in ends, "layout" in ends, len(broken)


def _matching(
    problem: Problem,
    here: Identity,
    entries: Iterable[TableEntry],
    other_layouts: bool = False,
) -> list[tuple[Source, Tier, TableEntry]]:
    """Entries of this layer that may be served here, the best first.

    A record with or without a bias serves the other too, after any exact one: adding a bias costs
    every config the same. So does one of experts with another routing, the nearest first. A table
    that knows the layer in another layout only is refused, unless
    `other_layouts` lets it pass.
    """
    layer = _without_bias(problem)
    found: list[tuple[Source, Tier, TableEntry]] = []
    other_layout: str | None = None
    for entry in entries:
        candidate = _without_bias(entry.problem)
        fit = tier(entry.identity, here)
        if fit == "none":
            continue
        if candidate == layer:
            same = (entry.problem.bias, entry.problem.routing) == (problem.bias, problem.routing)
            found.append(("tuned" if same else "nearest", fit, entry))
        elif replace(candidate, layout=layer.layout) == layer:
            other_layout = candidate.layout
    if other_layout and not found and not other_layouts:
        raise TableError(
            f"a table must be of the layer's layout '{layer.layout}', but got '{other_layout}' for "
            f"{layer.format} n={layer.n} k={layer.k}; tune again or repack the layer"
        )

    def rank(item: tuple[Source, Tier, TableEntry]) -> tuple[int, float, bool, str]:
        far = _routings_apart(item[2].problem, problem)
        return TIERS.index(item[1]), far, item[0] == "nearest", item[2].identity.id

    return sorted(found, key=rank)


def _routings_apart(one: Problem, other: Problem) -> float:
    """How far what falls on experts is from what was tuned for; 0 where there are none."""
    if one.routing is None or other.routing is None or one.routing == other.routing:
        return 0.0
    return distance(one.routing, other.routing, other.experts or 1)


def _claims(
    problem: Problem,
    here: Identity,
    entries: list[tuple[Source, Tier, TableEntry]],
    refused: frozenset[KernelConfig],
) -> Iterator[_Claim]:
    """What each record was promoted for, best entry first."""
    for source, fit, entry in entries:
        for interval in entry.intervals:
            if interval.config not in refused and not config_violations(
                interval.config, problem.at(interval.m), here.device
            ):
                yield _Claim(interval.m_low, interval.m_high, source, fit, interval)


def _tuned(claim: _Claim, low: int, high: int) -> Dispatch:
    interval = claim.interval
    return Dispatch(interval.config, claim.source, claim.tier, interval.record, low, high)


def _free(taken: Sequence[Dispatch], low: int, high: int) -> list[tuple[int, int]]:
    """The parts of [low, high) that no dispatch of `taken` (sorted, disjoint) covers."""
    parts = []
    for dispatch in taken:
        if dispatch.m_low >= high:
            break
        if dispatch.m_low > low:
            parts.append((low, dispatch.m_low))
        low = max(low, dispatch.m_high)
    return [*parts, (low, high)] if low < high else parts


def _joined(dispatches: Iterable[Dispatch]) -> list[Dispatch]:
    """Neighbours that say the same as one."""
    joined: list[Dispatch] = []
    for dispatch in dispatches:
        if joined and replace(joined[-1], m_low=dispatch.m_low, m_high=dispatch.m_high) == dispatch:
            dispatch = replace(dispatch, m_low=joined.pop().m_low)
        joined.append(dispatch)
    return joined


def _without_bias(problem: Problem) -> Problem:
    """The layer, whatever its bias, and whatever falls on its experts."""
    return replace(problem, m=0, bias=False, routing=problem.routing and UNIFORM)


def _gravity(item: tuple[str, object]) -> tuple[int, str]:
    return -TIERS.index(RULES[item[0]]), item[0]


def _brief(value: object) -> str:
    text = " ".join(value) if isinstance(value, tuple | list) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
