"""The command line `humming-tune`: the main job, the list of commands, and exit codes. The commands
themselves are commands/.

Exit codes: 0 done; 1 a failure of ours; 2 something the user can mend, told in one sentence; 130
ended by Ctrl-C, with all that was measured kept.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from humming.errors import HummingError, UsageError
from humming.settings import database_url, tables_dir
from humming.version import __version__, require_alone
from tuner.commands import machine, models, moving, records, tables
from tuner.commands.options import (
    AsJson,
    BatchInvariant,
    Database,
    DeviceName,
    Duration,
    Fleet,
    Format,
    FromMisses,
    Model,
    Ray,
    Resume,
    Routing,
    Tokens,
    Tp,
    Unfused,
    Version,
)
from tuner.commands.output import console, interruptible, named_device, print_json, say
from tuner.fleet.crews import crew_of
from tuner.pipeline import Job, tune
from tuner.planning.budget import Budget, parse_duration, spent_s
from tuner.planning.tasks import parse_m, parse_routing
from tuner.progress import Watch
from tuner.report import print_table, to_json
from tuner.store.failover import open_for_tuning
from tuner.store.migrate import upgrade

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=False,
)
db_app = typer.Typer(help="The tuning database.", rich_markup_mode=None)
app.add_typer(db_app, name="db")
app.add_typer(tables.app, name="table")
for command in (
    models.plan,
    models.advise,
    models.warm,
    models.explain,
    models.best,
    records.verify,
    records.repro,
    records.diff,
    moving.export,
    moving.merge,
    moving.prune,
    machine.doctor,
    machine.inspect,
    machine.spaces,
):
    app.command()(command)
app.command("import")(moving.import_)


@app.callback(invoke_without_command=True)
def main_job(
    context: typer.Context,
    model: Model = None,
    tp: Tp = 1,
    m: Tokens = "1,16,256",
    device: DeviceName = "auto",
    db: Database = None,
    budget: Duration = None,
    format: Format = None,
    routing: Routing = "uniform",
    batch_invariant: BatchInvariant = False,
    unfused: Unfused = False,
    resume: Resume = False,
    fleet: Fleet = False,
    ray: Ray = None,
    from_misses: FromMisses = False,
    as_json: AsJson = False,
    show_version: Version = False,
) -> None:
    """Tune the kernels of a model's linear layers on this machine, and keep what was proven.

    humming-tune --model config.json [--budget 10m]
    """
    if context.invoked_subcommand is not None:
        return
    if show_version:
        say(f"humming-tune {__version__}")
        return
    if (model is None) != from_misses:
        raise UsageError(
            "--model must name a config.json or a folder that holds one, or --from-misses stand in "
            "its place; see humming-tune --help"
        )
    url = database_url(db)
    job = Job(
        model=None if model is None else Path(model),
        device=named_device(device),
        m_values=parse_m(m),
        tp=tp,
        format=format,
        resume=resume,
        routing=parse_routing(routing),
        batch_invariant=batch_invariant,
        unfused=unfused,
    )
    seconds = None if budget is None else parse_duration(budget)
    deadline = Budget(seconds, spent_s())
    errors = Console(stderr=True, soft_wrap=True)
    watch = Watch(errors, quiet=as_json)
    with (
        interruptible(),
        open_for_tuning(url, watch.note) as store,
        crew_of(url, fleet, ray, device) as crew,
    ):
        tuned = tune(job, store, tables_dir(db), deadline, watch, crew)
        report = to_json(tuned, store)
    if as_json:
        print_json(report)
    else:
        print_table(report, console())


@db_app.command("upgrade")
def db_upgrade(db: Database = None, as_json: AsJson = False) -> None:
    """Bring the database to this version's schema; every command does so on first use."""
    revision = upgrade(database_url(db))
    print_json({"revision": revision}) if as_json else say(
        f"the database is at revision {revision}"
    )


def main() -> None:
    """Entry point of the command `humming-tune`: an error raised on purpose becomes one sentence on
    standard error and its exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            if sys.argv[1:2] != ["doctor"]:  # which says so itself, among the rest
                require_alone()
            app()
    except HummingError as error:
        sys.stderr.write(f"humming-tune: {error}\n")
        raise SystemExit(error.exit_code) from None
    except OSError as error:  # of standard output: full, or closed by its reader
        sys.stderr.write(f"humming-tune: the output cannot be written: {error.strerror}\n")
        _discard_output()
        raise SystemExit(1) from None


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning is a line to the user, without the place in our code that Python would add."""
    sys.stderr.write(f"humming-tune: {message}\n")


def _discard_output() -> None:
    """Point standard output at nothing, so that Python's last flush does not fail once more."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
