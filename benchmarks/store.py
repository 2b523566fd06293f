"""`python -m benchmarks.store`: the tuning database under many processes, and with very many rows,
on SQLite and on a real PostgreSQL server that it starts itself.

Crowds: each process begins, finishes and reads back one trial after another; again with processes
killed, and with the server crashed and started in the middle. Rows: what the tuner asks of 10^6
measurements. Nothing is compiled or timed but the database.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import store_rows
from benchmarks.provenance import provenance
from benchmarks.store_crowd import crowd
from benchmarks.store_server import Server, postgres_server
from humming.jit.identity import serving_device

DOWN_S = 3.0
"""How long the server stays away."""


def main(arguments: list[str] | None = None) -> None:
    """Prints JSON, and writes it to --out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--each", type=int, default=1000, help="trials of a process")
    parser.add_argument("--kills", type=int, default=16, help="processes that are killed")
    parser.add_argument("--rows", type=int, default=1_000_000, help="0 leaves that part out")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), help="one of both alone")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="humming-store-"))
    result: dict[str, Any] = {"provenance": provenance(serving_device()), "crowds": {}, "rows": {}}
    try:
        with postgres_server() as server:
            databases = [("sqlite", lambda name: f"sqlite:///{folder}/{name}.db")]
            databases.append(("postgresql", lambda name: _database(server, name)))
            for kind, new in databases:
                if given.database in (None, kind):
                    for part, name, found in _parts(kind, new, server, given):
                        result[part].setdefault(kind, {})[name] = found
                        _keep(result, given.out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


def _parts(
    kind: str, new: Callable[[str], str], server: Server, given: argparse.Namespace
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Which part of the result, its name and figures, one after another."""

    def restart() -> None:
        server.crash()
        time.sleep(DOWN_S)
        server.start()

    size = (given.processes, given.each)
    if given.processes:
        yield "crowds", "calm", crowd(new("calm"), *size)
        disturb = restart if kind == "postgresql" else None
        name = "killed, server crashed" if disturb else "killed"
        yield "crowds", name, crowd(new("harmed"), *size, kills=given.kills, disturb=disturb)
    if given.rows:
        url = new("rows")
        seconds = store_rows.fill(url, given.rows)
        size_bytes = store_rows.size_bytes(url)
        filled = {"measurements": given.rows, "seconds": round(seconds, 1), "bytes": size_bytes}
        winners = {"machines": store_rows.MACHINES, "problems of each": store_rows.PROBLEMS}
        yield "rows", "filled", {**filled, **winners}
        yield "rows", "questions", store_rows.ask(url)


def _database(server: Server, name: str) -> str:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.url.replace("/postgres?", f"/{name}?")


def _keep(result: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
