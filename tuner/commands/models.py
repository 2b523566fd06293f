"""Commands about one model, or one shape: plan, advise, warm, explain, best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from humming.errors import UsageError
from humming.spec.layouts import layout_for
from humming.spec.problem import Problem
from tuner import advice, warming
from tuner.commands.options import AsJson, Database, DeviceName, Format, Model, Tokens, Tp, Unfused
from tuner.commands.output import console, named_device, print_json
from tuner.evidence import best as serving
from tuner.evidence import explaining
from tuner.planning.predicting import plan_json, print_plan
from tuner.planning.tasks import parse_m


def plan(
    model: Model = None,
    tp: Tp = 1,
    m: Tokens = "1,16,256",
    device: DeviceName = "auto",
    db: Database = None,
    format: Format = None,
    unfused: Unfused = False,
    as_json: AsJson = False,
) -> None:
    """Show layers, problems, candidates, rejections by rule and predicted time; runs nothing."""
    if model is None:
        raise UsageError(
            "--model must name a config.json or a folder that holds one; see humming-tune plan "
            "--help"
        )
    result = plan_json(Path(model), tp, format, parse_m(m), named_device(device), db, unfused)
    if as_json:
        print_json(result)
    else:
        print_plan(result, console())


def advise(
    model: Model = None,
    tp: Tp = 1,
    m: Annotated[str, typer.Option("--m", help="Token count of a call.")] = "1",
    device: DeviceName = "auto",
    db: Database = None,
    format: Annotated[
        str | None, typer.Option("--format", help="Formats to compare, separated by commas.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank weight formats for a model here: time, memory, error, and what does not run."""
    if model is None:
        raise UsageError(
            "--model must name a config.json or a folder that holds one; see humming-tune advise "
            "--help"
        )
    tokens = parse_m(m)
    if len(tokens) != 1:
        raise UsageError(f"advise takes one number of tokens, but got --m {m}; write --m 1")
    formats = [] if format is None else [name.strip() for name in format.split(",")]
    result = advice.advise(Path(model), named_device(device), tp, tokens[0], formats, db)
    if as_json:
        print_json(advice.to_json(result))
    else:
        advice.print_advice(result, console())


def warm(
    model: Model = None,
    tp: Tp = 1,
    device: DeviceName = "auto",
    db: Database = None,
    format: Format = None,
    unfused: Unfused = False,
    as_json: AsJson = False,
) -> None:
    """Compile ahead every kernel that a model's layers will ask for here, tuned or not.

    Exit code 0 where all compiled, else 1.
    """
    if model is None:
        raise UsageError(
            "--model must name a config.json or a folder that holds one; see humming-tune warm "
            "--help"
        )
    result = warming.warm(Path(model), named_device(device), tp, format, db, unfused)
    if as_json:
        print_json(warming.to_json(result))
    else:
        warming.print_warmed(result, console())
    if result.failed:
        raise SystemExit(1)


def explain(
    model: Model = None,
    tp: Tp = 1,
    m: Tokens = "1,16,256",
    device: DeviceName = "auto",
    db: Database = None,
    format: Format = None,
    unfused: Unfused = False,
    as_json: AsJson = False,
) -> None:
    """Show which record serves each problem here, from which host and when, and how that machine
    differs from this one.
    """
    if model is None:
        raise UsageError(
            "--model must name a config.json or a folder that holds one; see humming-tune explain "
            "--help"
        )
    found = explaining.explain(
        Path(model), named_device(device), tp, parse_m(m), format, db, unfused
    )
    if as_json:
        print_json(explaining.to_json(found))
    else:
        explaining.print_explanation(found, console())


def best(
    format: Annotated[str | None, typer.Option("--format", help="Such as int4g128.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Out features of the layer.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="In features of the layer.")] = None,
    m: Tokens = "1,16,256",
    dtype: Annotated[str, typer.Option("--dtype", help="Of x and out: bf16, fp16, fp32.")] = "bf16",
    device: DeviceName = "auto",
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show what serves one shape here, tuned or taken from a neighbour, and how fast it is."""
    if format is None or n is None or k is None:
        raise UsageError(
            "best takes a shape; write such as humming-tune best --format int4g128 --n 4096 --k "
            "14336"
        )
    found = named_device(device)
    layout = layout_for(found, format)
    problem = Problem(format, n, k, 0, dtype, dtype, layout)
    rows = serving.best(problem, parse_m(m), found, db)
    if as_json:
        print_json(serving.to_json(rows, found))
    else:
        serving.print_best(rows, console())
