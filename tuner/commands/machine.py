"""Commands about this machine and about files, without a model or database: doctor, inspect,
spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from humming.errors import CheckpointError, UsageError
from search_spaces.load import describe, load_spaces, validate
from tuner import inspecting
from tuner.commands.options import AsJson, Database, DeviceName
from tuner.commands.output import console, named_device, print_json, say
from tuner.doctor import examine, print_report
from tuner.doctor import to_json as findings_to_json
from tuner.doctor.finding import Surroundings


def doctor(device: DeviceName = "auto", db: Database = None, as_json: AsJson = False) -> None:
    """Check whether this machine can tune and serve, and print how to mend what is not well.

    Exit code 0 where nothing fails, else 1.
    """
    surroundings = Surroundings(named_device(device), db)
    findings = examine(surroundings)
    report = findings_to_json(findings, surroundings)
    if as_json:
        print_json(report)
    else:
        print_report(findings, console())
    if report["status"] == "fail":
        raise SystemExit(1)


def inspect(
    folder: Annotated[
        Path | None, typer.Argument(help="A model's folder, with config.json and safetensors.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a checkpoint stores: format, shapes, scales and bits of each layer, what is not
    quantized and why.

    Exit code 0 where all layers can be read, else 2.
    """
    if folder is None:
        raise UsageError(
            "inspect takes a model's folder, but got none; write humming-tune inspect path/to/model"
        )
    found = inspecting.inspect(folder)
    if as_json:
        print_json(inspecting.to_json(found))
    else:
        inspecting.print_inspection(found, console())
    if found.refused:
        raise CheckpointError(
            f"all layers must be ones that can be read, but {len(found.refused)} of "
            f"{len(found.layers) + len(found.refused)} are not: {found.refused[0].why}"
        )


def spaces(
    file: Annotated[
        Path | None,
        typer.Argument(help="A search space file to validate; none lists the built-in ones."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the search spaces and their sizes, or validate one file."""
    if file is not None:
        problems = validate(file)
        if problems:
            raise UsageError("; ".join(problems))
        print_json({"file": str(file), "valid": True}) if as_json else say(f"{file} is valid")
        return
    rows = [describe(space) for space in load_spaces()]
    if as_json:
        print_json({"spaces": rows})
    for row in () if as_json else rows:
        say(f"{row['name']}: family {row['family']}, {row['size']} combinations")
        for name, values in row["parameters"].items():
            say(f"  {name}: {', '.join(map(str, values))}")
