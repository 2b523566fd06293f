"""The command line `humming-tune`: words in, words and exit codes out. Every command hands its work
to another module.

Exit codes: 0 done; 1 a failure of ours; 2 something the user can mend, told in one sentence; 130
ended by Ctrl-C, with all that was measured kept.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from humming.errors import CheckpointError, HummingError, UsageError
from humming.jit.detect import find_device
from humming.jit.identity import serving_device
from humming.settings import database_url, tables_dir
from humming.spec.device import Device
from humming.version import __version__, require_alone
from search_spaces.load import describe, load_spaces, validate
from tuner import advice, inspecting, reproducing, verifying, warming
from tuner.budget import Budget, parse_duration, process_age_s
from tuner.doctor import examine, print_report
from tuner.doctor import to_json as findings_to_json
from tuner.doctor.finding import Surroundings
from tuner.pipeline import Job, tune
from tuner.planning import plan_json, print_plan
from tuner.progress import Watch
from tuner.report import print_table, to_json
from tuner.store.migrate import upgrade
from tuner.store.open import open_store
from tuner.tasks import parse_m

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=False,
)
db_app = typer.Typer(help="The tuning database.", rich_markup_mode=None)
app.add_typer(db_app, name="db")

Model = Annotated[
    str | None, typer.Option("--model", help="A config.json, or a folder that holds one.")
]
Tp = Annotated[int, typer.Option(help="Tensor-parallel size.")]
Tokens = Annotated[str, typer.Option("--m", help="Token counts to tune for.")]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu or cuda:0.")]
Database = Annotated[
    str | None,
    typer.Option(
        "--db", help="Database URL or SQLite path [HUMMING_DB, else the user's data folder]."
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Quantize the model's 16-bit linear layers so.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


@app.callback(invoke_without_command=True)
def main_job(
    context: typer.Context,
    model: Model = None,
    tp: Tp = 1,
    m: Tokens = "1,16,256",
    device: DeviceName = "auto",
    db: Database = None,
    budget: Annotated[
        str | None, typer.Option(help="Time in all, from process start, such as 60s or 10m.")
    ] = None,
    format: Format = None,
    resume: Annotated[
        bool, typer.Option("--continue", help="Search on where a problem is settled.")
    ] = False,
    as_json: AsJson = False,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Tune the kernels of a model's linear layers on this machine, and keep what was proven.

    humming-tune --model config.json [--budget 10m]
    """
    if context.invoked_subcommand is not None:
        return
    if show_version:
        _say(f"humming-tune {__version__}")
        return
    if model is None:
        raise UsageError(
            "--model must name a config.json or a folder that holds one; see humming-tune --help"
        )
    job = Job(
        model=Path(model),
        device=_device(device),
        m_values=parse_m(m),
        tp=tp,
        format=format,
        resume=resume,
    )
    seconds = None if budget is None else parse_duration(budget)
    deadline = Budget(seconds, process_age_s())
    errors = Console(stderr=True, soft_wrap=True)
    with _interruptible(), open_store(database_url(db)) as store:
        tuned = tune(job, store, tables_dir(db), deadline, Watch(errors, quiet=as_json))
        report = to_json(tuned, store)
    if as_json:
        _print_json(report)
    else:
        print_table(report, _console())


@app.command()
def plan(
    model: Model = None,
    tp: Tp = 1,
    m: Tokens = "1,16,256",
    device: DeviceName = "auto",
    db: Database = None,
    format: Format = None,
    as_json: AsJson = False,
) -> None:
    """Show layers, problems, candidates, rejections by rule and predicted time; runs nothing."""
    if model is None:
        raise UsageError(
            "--model must name a config.json or a folder that holds one; see humming-tune plan "
            "--help"
        )
    result = plan_json(Path(model), tp, format, parse_m(m), _device(device), db)
    if as_json:
        _print_json(result)
    else:
        print_plan(result, _console())


@app.command()
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
        _print_json({"file": str(file), "valid": True}) if as_json else _say(f"{file} is valid")
        return
    rows = [describe(space) for space in load_spaces()]
    if as_json:
        _print_json({"spaces": rows})
    for row in () if as_json else rows:
        _say(f"{row['name']}: family {row['family']}, {row['size']} combinations")
        for name, values in row["parameters"].items():
            _say(f"  {name}: {', '.join(map(str, values))}")


@app.command()
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
    result = advice.advise(Path(model), _device(device), tp, tokens[0], formats, db)
    if as_json:
        _print_json(advice.to_json(result))
    else:
        advice.print_advice(result, _console())


@app.command()
def warm(
    model: Model = None,
    tp: Tp = 1,
    device: DeviceName = "auto",
    db: Database = None,
    format: Format = None,
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
    result = warming.warm(Path(model), _device(device), tp, format, db)
    if as_json:
        _print_json(warming.to_json(result))
    else:
        warming.print_warmed(result, _console())
    if result.failed:
        raise SystemExit(1)


@app.command()
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
    with _interruptible(), open_store(database_url(db), create=False) as store:
        found = verifying.verify(_device(device), store, tables_dir(db), deadline, watch, sample)
    if as_json:
        _print_json(verifying.to_json(found))
    else:
        verifying.print_verified(found, _console())


@app.command()
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
        _print_json({**shown, "notes": notes})
        return
    for note in notes:
        sys.stderr.write(f"note: {note}\n")
    _say(f"wrote {out}" if out else script)


@app.command()
def doctor(device: DeviceName = "auto", db: Database = None, as_json: AsJson = False) -> None:
    """Check whether this machine can tune and serve, and print how to mend what is not well.

    Exit code 0 where nothing fails, else 1.
    """
    surroundings = Surroundings(_device(device), db)
    findings = examine(surroundings)
    report = findings_to_json(findings, surroundings)
    if as_json:
        _print_json(report)
    else:
        print_report(findings, _console())
    if report["status"] == "fail":
        raise SystemExit(1)


@app.command()
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
        _print_json(inspecting.to_json(found))
    else:
        inspecting.print_inspection(found, _console())
    if found.refused:
        raise CheckpointError(
            f"all layers must be ones that can be read, but {len(found.refused)} of "
            f"{len(found.layers) + len(found.refused)} are not: {found.refused[0].why}"
        )


@db_app.command("upgrade")
def db_upgrade(db: Database = None, as_json: AsJson = False) -> None:
    """Bring the database to this version's schema; every command does so on first use."""
    revision = upgrade(database_url(db))
    _print_json({"revision": revision}) if as_json else _say(
        f"the database is at revision {revision}"
    )


def main() -> None:
    """Entry point of the command `humming-tune`: an error raised on purpose becomes one sentence on
    standard error and its exit code."""
    try:
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


def _device(spec: str) -> Device:
    """The named device as a serving process will use it: a CPU with torch's number of threads."""
    device = find_device(spec)
    return serving_device() if device.kind == "cpu" else device


def _discard_output() -> None:
    """Point standard output at nothing, so that Python's last flush does not fail once more."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends with one sentence and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("humming-tune: ended by Ctrl-C; all that was measured is kept\n")
        raise SystemExit(130) from None


def _console() -> Console:
    """A console that does not squeeze tables into 80 columns where nobody looks at a terminal."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def _print_json(value: Any) -> None:
    _say(json.dumps(value, indent=1))


def _say(text: str) -> None:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
