"""Commands about records that are there: verify, repro."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from humming.errors import UsageError
from humming.settings import database_url, tables_dir
from tuner import reproducing, verifying
from tuner.budget import Budget, parse_duration, process_age_s
from tuner.commands.options import AsJson, Database, DeviceName
from tuner.commands.output import console, interruptible, named_device, print_json, say
from tuner.progress import Watch
from tuner.store.open import open_store


def verify(
    device: DeviceName = "auto",
    db: Database = None,
    budget: Annotated[str, typer.Option("--budget", help="Time in all, such as 2m.")] = "2m",
    sample: Annotated[int, typer.Option("--sample", help="How many served configs.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Measure a sample of what serves against the heuristic; demote what is slower or wrong."""
    if sample < 1:
        raise UsageError(f"`--sample >= 1` must hold, but got {sample}; write --sample 12")
    deadline = Budget(parse_duration(budget), process_age_s())
    watch = Watch(Console(stderr=True, soft_wrap=True), quiet=as_json)
    with interruptible(), open_store(database_url(db), create=False) as store:
        found = verifying.verify(
            named_device(device), store, tables_dir(db), deadline, watch, sample
        )
    if as_json:
        print_json(verifying.to_json(found))
    else:
        verifying.print_verified(found, console())


def repro(
    record: Annotated[
        str | None, typer.Argument(help="The id of a trial or promotion, or its beginning.")
    ] = None,
    db: Database = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File for the script; else it is printed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a script that compiles, checks and times the kernel of one record by itself."""
    if record is None:
        raise UsageError(
            "repro takes the id of a record, but got none; see humming-tune repro --help"
        )
    with open_store(database_url(db), write=False) as store:
        script, notes = reproducing.repro(store, record)
    if out is not None:
        try:
            out.write_text(script, "utf-8")
        except OSError as error:
            raise UsageError(
                f"--out must be a file that can be written, but got '{out}' ({error.strerror})"
            ) from None
    if as_json:
        shown = {"out": str(out)} if out else {"script": script}
        print_json({**shown, "notes": notes})
        return
    for note in notes:
        sys.stderr.write(f"note: {note}\n")
    say(f"wrote {out}" if out else script)
