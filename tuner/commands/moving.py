"""Commands that move evidence or let go of it: export, import, merge, prune."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any

import typer

from humming.dispatch.pointers import is_id
from humming.errors import UsageError
from humming.settings import database_url, table_name, tables_dir
from tuner.commands.options import AsJson, Database
from tuner.commands.output import print_json, say
from tuner.evidence import t4
from tuner.planning.budget import parse_duration
from tuner.store.migrate import revision
from tuner.store.moving import exporting, merging, pruning
from tuner.store.open import open_store
from tuner.store.store import Store
from tuner.store.tables import publish


def export(
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write; with --t4 a folder.")
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Write the serving winners as a table file.")
    ] = False,
    as_t4: Annotated[
        bool, typer.Option("--t4", help="Write trials in the auto-tuning community's T4 format.")
    ] = False,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Write all evidence as one bundle, the served table, or trials for other tools.

    humming-tune export --out fleet.jsonl.gz
    """
    if out is None:
        raise UsageError(
            "export takes a file to write, but got none; write --out evidence.jsonl.gz"
        )
    if table and as_t4:
        raise UsageError("export writes one thing, but got --table and --t4; leave one away")
    with open_store(database_url(db), write=False) as store:
        if table:
            made = exporting.export_table(store, out)
            told: dict[str, Any] = {"kind": "table", "id": made.id, "entries": len(made.entries)}
        elif as_t4:
            told = {"kind": "t4", **t4.export(store, out)}
        else:
            told = {"kind": "evidence", "rows": merging.export(store.connections, out)}
    _tell({"out": str(out), **told}, as_json)


def import_(
    file: Annotated[
        Path | None, typer.Argument(help="A bundle or an exported table.", metavar="FILE")
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Add the evidence of a bundle, or the winners of an exported table, and serve by it.

    A damaged or contradicting file changes nothing, and exit code 2 says so.
    """
    if file is None:
        raise UsageError("import takes a file that export wrote, but got none; name it")
    rows = merging.file_rows(file)
    _take([(str(file), rows)], db, as_json)


def merge(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Databases, bundles or exported tables.", metavar="A B ..."),
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Add the evidence of databases and files to the database of --db; in any order, any number of
    times, the result is the same. One that is damaged or contradicts another changes nothing.
    """
    if not sources:
        raise UsageError("merge takes databases or files, but got none; name them")
    with ExitStack() as stack:
        _take([(source, _rows(source, stack)) for source in sources], db, as_json)


def prune(
    before: Annotated[
        str | None, typer.Option("--before", help="An age such as 90d, or a date.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")
    ] = False,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Forget old trials and replaced decisions, never what serves, is named or has crashed."""
    if before is None:
        raise UsageError("prune takes an age or a date, but got none; write --before 90d")
    time = moment(before)
    if time > datetime.now(timezone.utc):
        raise UsageError(
            f"prune takes a time that has passed, but got '{before}', which is to come; write such "
            "as 90d"
        )
    with open_store(database_url(db), create=False, write=not dry_run) as store:
        pruned = pruning.prune(store, time, dry_run=dry_run, pinned=_pinned())
    if not dry_run:
        for id in pruned.generations:
            (tables_dir(db) / f"{id}.json").unlink(missing_ok=True)
    rows = {name: count for name, count in pruned.rows.items() if count}
    _tell({"dry_run": dry_run, "deleted": rows}, as_json)


def moment(text: str) -> datetime:
    """The point of time that "90d", "36h", "2026-11-01" or "2026-11-01T12:00" names, in UTC. Raises
    UsageError."""
    try:
        if text.endswith("d") and text[:-1].isdigit():
            return datetime.now(timezone.utc) - timedelta(days=int(text[:-1]))
        if text[:1].isdigit() and text[-1:] in ("s", "m", "h"):
            return datetime.now(timezone.utc) - timedelta(seconds=parse_duration(text))
        if "-" not in text:  # digits alone are an age without a unit as well as a date
            raise ValueError(text)
        time = datetime.fromisoformat(text)
        zoned = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
        return zoned.astimezone(timezone.utc)
    except (ValueError, OverflowError, UsageError):
        raise UsageError(
            f"a point of time must be an age with its unit or a date, but got '{text}'; write 90d, "
            "36h or 2026-11-01"
        ) from None


def _pinned() -> str | None:
    """The id of the generation that HUMMING_TABLE=@ID names."""
    name = table_name() or ""
    return name[1:] if name.startswith("@") and is_id(name[1:]) else None


def _rows(source: str, stack: ExitStack) -> merging.Rows:
    """The rows of one source, a database by its URL or its file's first bytes, else a file."""
    path = Path(source).expanduser()
    if "://" not in source and not _is_sqlite(path):
        return merging.file_rows(path)
    with open_store(source, write=False) as other:
        return stack.enter_context(merging.snapshot(other.connections))


def _take(sources: list[tuple[str, merging.Rows]], db: str | None, as_json: bool) -> None:
    """Takes all sources in, or none, and serves by them. A database that is not there yet is made
    only once they were found sound."""
    names, rows = [name for name, _ in sources], [rows for _, rows in sources]
    url = database_url(db)
    if revision(url) is None:
        merging.check(rows)
    with open_store(url) as store:
        merged = merging.merge_all(store.connections, rows)
        _report(store, list(zip(names, merged, strict=True)), db, as_json)


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _report(
    store: Store, merged: list[tuple[str, merging.Merged]], db: str | None, as_json: bool
) -> None:
    table = publish(store, tables_dir(db))
    sources = [
        {"source": name, "added": dict(+what.added), "known": what.known.total()}
        for name, what in merged
    ]
    path = None if table is None or table.path is None else str(table.path)
    _tell({"database": store.shown, "sources": sources, "table": path}, as_json)


def _tell(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    for source in told.get("sources", ()):
        added = _counts(source["added"])
        were = "row was" if source["known"] == 1 else "rows were"
        say(f"{source['source']}: added {added}; {source['known']} {were} here already")
    if "sources" in told:
        say(f"table: {told['table'] or 'none, as nothing is tuned yet'}")
    elif "deleted" in told:
        say(f"{'would delete' if told['dry_run'] else 'deleted'} {_counts(told['deleted'])}")
    else:
        counts = ", ".join(f"{told[name]} {name}" for name in told if type(told[name]) is int)
        say(f"wrote {told['out']}: {told['kind']}, {counts}")


def _counts(rows: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in rows.items()) or "nothing"
