"""Advice as JSON and as a table. Decides nothing."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tuner.advice.ranking import Advice, Ranked


def to_json(advice: Advice) -> dict[str, Any]:
    """`advise --json`: the options in order, and what their times were predicted from."""
    return {
        "model": advice.model,
        "device": advice.device.name,
        "tp": advice.tp,
        "m": advice.m,
        "read_gb_s": advice.limits.bytes_per_s / 1e9,
        "tflops": advice.limits.flops / 1e12,
        "over_limit": advice.over_limit,
        "formats": [
            {
                "format": one.format,
                "formats": list(one.formats),
                "runs": one.runs,
                "reasons": list(one.reasons),
                "ms_per_token": one.ms_per_token,
                "time_source": _time_source(one),
                "measured_share": one.measured_share,
                "weight_gb": one.weight_bytes / 1e9,
                "weight_error": one.error.relative,
                "error_source": one.error.source,
                "beaten_by": one.beaten_by,
            }
            for one in advice.ranked
        ],
        "warnings": list(advice.warnings),
    }


def print_advice(advice: Advice, console: Console) -> None:
    """The advice for a person."""
    table = Table(
        title=f"{advice.model} on {advice.device.name}, m = {advice.m}",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("format")
    for name in ("ms a token", "GB of weights", "weight error"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for one in advice.ranked:
        error = "-" if one.error.relative is None else f"{one.error.relative:.2%}"
        table.add_row(
            one.format,
            f"{'' if one.measured_share == 1.0 else '~'}{one.ms_per_token:.3g}",
            f"{one.weight_bytes / 1e9:.3g}",
            error,
            _remark(one),
        )
    console.print(table)
    for one in advice.ranked:
        for reason in one.reasons[:1]:
            console.print(f"{one.format} does not run here: {reason}", markup=False)
    console.print(_sources(advice), markup=False)
    for warning in advice.warnings:
        console.print(f"warning: {warning}", markup=False)


def _time_source(one: Ranked) -> str:
    if one.measured_share == 0.0:
        return "predicted"
    return "measured" if one.measured_share >= 1.0 - 1e-9 else "partly measured"


def _remark(one: Ranked) -> str:
    if not one.runs:
        return "does not run here"
    return f"{one.beaten_by} is as fast and as exact" if one.beaten_by else ""


def _sources(advice: Advice) -> str:
    """One paragraph on where the figures are from."""
    limits = advice.limits
    text = (
        "Times are of the linear layers but lm_head; those with ~ are at least partly predicted: "
        f"memory is read at {limits.bytes_per_s / 1e9:.1f} GB/s, {limits.flops / 1e12:.2g} TFLOPS, "
    )
    text += (
        f"and kernels measured here take {advice.over_limit:.2f} times that limit."
        if advice.over_limit > 1.0
        else "and nothing was measured here yet (humming-tune --model does)."
    )
    errors = {one.error.source for one in advice.ranked if one.error.relative is not None}
    return f"{text} Weight errors: {'; '.join(sorted(errors))}."
