"""The options ranked for a device: time, memory and error of each, and which are worth a look. How
that is shown is shown.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from humming.spec.device import Device
from tuner.advice.accuracy import Sample, WeightError, rounding_error, sample_of, weight_error
from tuner.advice.options import PLAIN, STORED, Option, make_options
from tuner.advice.times import (
    Evidence,
    Limits,
    Time,
    measure_limits,
    plain_time,
    quantized_time,
    read_evidence,
)


@dataclass(frozen=True)
class Ranked:
    """One option. `ms_per_token` is of all linear layers but lm_head; `measured_share` says which
    part of it was measured here rather than predicted.

    `beaten_by` names an option that runs, is as fast and as exact, and better in one of both; None
    where there is none.
    """

    format: str
    formats: tuple[str, ...]
    ms_per_token: float
    measured_share: float
    weight_bytes: int
    error: WeightError
    reasons: tuple[str, ...]
    beaten_by: str | None = None

    @property
    def runs(self) -> bool:
        """Whether the device can run all of its layers."""
        return not self.reasons


@dataclass(frozen=True)
class Advice:
    """Options from the most to the least advisable: those that run first, by time."""

    model: str
    device: Device
    tp: int
    m: int
    limits: Limits
    over_limit: float
    ranked: tuple[Ranked, ...]
    warnings: tuple[str, ...]


def advise(
    model: Path,
    device: Device,
    tp: int = 1,
    m: int = 1,
    formats: Sequence[str] = (),
    database: str | None = None,
) -> Advice:
    """Ranks weight formats for the linear layers of `model` on `device`, at `m` tokens a call.

    Raises ModelError for a config that cannot be planned, FormatError for an unknown format,
    StoreError for a database that cannot be read.
    """
    workload, options = make_options(model, tp, m, device, formats)
    evidence, limits = read_evidence(device, database), measure_limits(device, workload.dtype)
    factor, sample = evidence.over_limit(m, limits), sample_of(model)
    ranked = [_ranked(option, m, evidence, limits, factor, sample) for option in options]
    ranked = [replace(one, beaten_by=_beaten_by(one, ranked)) for one in ranked]
    ranked.sort(key=lambda one: (not one.runs, one.ms_per_token))
    return Advice(
        workload.model, device, tp, m, limits, factor, tuple(ranked), tuple(workload.warnings)
    )


def _ranked(
    option: Option, m: int, evidence: Evidence, limits: Limits, factor: float, sample: Sample
) -> Ranked:
    quantized = [
        (group.count, quantized_time(group, problem, evidence, limits))
        for group, problem in option.problems
    ]
    plain = [
        (group.count, plain_time(group, m, option.dtype, evidence, limits))
        for group in option.plain
    ]
    times = [(count, time, factor) for count, time in quantized]
    times += [(count, time, 1.0) for count, time in plain]  # torch has its own distance
    us = sum(count * _us(time, over) for count, time, over in times)
    measured = sum(count * time.us for count, time, _ in times if time.measured)
    return Ranked(
        option.format,
        tuple(dict.fromkeys(group.format for group, _ in option.problems)),
        us / 1e3 / m,
        measured / us if us else 0.0,
        option.weight_bytes,
        _error(option, sample),
        option.reasons,
    )


def _us(time: Time, over_limit: float) -> float:
    return time.us if time.measured else time.us * over_limit


def _error(option: Option, sample: Sample) -> WeightError:
    """Of the format in which most weights are."""
    if option.format == PLAIN:
        return rounding_error(sample, option.dtype)
    sizes: dict[str, int] = {}
    for group, _ in option.problems:
        size = group.n * group.k * group.count * (group.experts or 1)
        sizes[group.format] = sizes.get(group.format, 0) + size
    found = weight_error(sample, max(sizes, key=lambda name: sizes[name])) if sizes else None
    if found is None:
        return WeightError(None, "the model has no linear layer")
    if option.format == STORED and found.relative is not None:
        return replace(found, source="predicted on Gaussian weights, quantized by rounding")
    return found


def _beaten_by(one: Ranked, others: Sequence[Ranked]) -> str | None:
    mine = one.error.relative
    for other in others:
        theirs = other.error.relative
        if other is one or not other.runs or mine is None or theirs is None:
            continue
        no_worse = other.ms_per_token <= one.ms_per_token and theirs <= mine
        if no_worse and (other.ms_per_token < one.ms_per_token or theirs < mine):
            return other.format
    return None
