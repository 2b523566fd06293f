"""Commands about records that are there: verify, repro, diff."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from humming.errors import UsageError
from humming.settings import database_url, tables_dir
from tuner import verifying
from tuner.commands.moving import moment
from tuner.commands.options import AsJson, Database, DeviceName
from tuner.commands.output import console, interruptible, named_device, print_json, say
from tuner.evidence import comparing, reproducing
from tuner.planning.budget import Budget, parse_duration, process_age_s
from tuner.progress import Watch
from tuner.store.open import open_store
from tuner.store.records import Winner


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


def diff(
    databases: Annotated[
        list[str] | None, typer.Argument(help="Two databases.", metavar="A B")
    ] = None,
    drivers: Annotated[
        str | None, typer.Option("--drivers", help="Two drivers, such as 550.54,580.65.")
    ] = None,
    dates: Annotated[
        str | None, typer.Option("--dates", help="Two dates or ages, such as 30d,2026-12-01.")
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Compare what serves in two databases, or in one by two drivers or at two dates."""
    asked = [what for what in (databases, drivers, dates) if what]
    if len(asked) != 1:
        raise UsageError(
            "diff compares two databases, two drivers or two dates; write humming-tune diff A B, "
            "or --drivers, or --dates"
        )
    left, right = _pair(databases or (drivers or dates or "").split(","))
    if databases:
        sides = [_winners(name, None) for name in (left, right)]
    elif dates:
        sides = [_winners(database_url(db), moment(date)) for date in (left, right)]
    else:
        found = _winners(database_url(db), None)
        sides = [[w for w in found if w.identity.driver == name] for name in (left, right)]
    differences = comparing.compare(*sides)
    report = comparing.to_json(differences, left, right)
    if as_json:
        print_json(report)
    else:
        comparing.print_differences(report, differences, console())


def _pair(names: list[str]) -> tuple[str, str]:
    if len(names) != 2 or not all(names):
        raise UsageError(f"diff compares two, but got {len(names)}; name both")
    return names[0].strip(), names[1].strip()


def _winners(database: str, until: datetime | None) -> list[Winner]:
    with open_store(database, write=False) as store:
        return store.winners(until=until)
