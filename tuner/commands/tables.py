"""Commands about generations of tuned tables: table list, name, back, forward."""

from __future__ import annotations

from typing import Annotated

import typer

from humming.dispatch.pointers import check_name
from humming.errors import UsageError
from humming.settings import database_url, tables_dir
from humming.spec.naming import counted
from tuner.commands.options import AsJson, Database
from tuner.commands.output import print_json, say
from tuner.store.generations import Generation
from tuner.store.open import open_store
from tuner.store.store import Store
from tuner.store.tables import fetch

app = typer.Typer(help="Generations of tuned tables, and their names.", rich_markup_mode=None)
Name = Annotated[str | None, typer.Argument(help="Such as prod.", metavar="NAME")]


@app.command("list")
def list_(db: Database = None, as_json: AsJson = False) -> None:
    """List the generations, oldest first: id, entries, host, time, names."""
    with open_store(database_url(db), write=False) as store:
        found = store.generations.list()
    if as_json:
        print_json({"generations": [_row(generation) for generation in found]})
        return
    for one in found:
        names = f"  {', '.join(one.names)}" if one.names else ""
        when = one.created_at.isoformat(timespec="seconds")
        say(f"{one.id}  {counted(one.entries, 'layer')}  {one.host}  {when}{names}")
    if not found:
        say("no generation yet; humming-tune --model config.json writes one")


@app.command("name")
def name_(
    name: Name = None,
    generation: Annotated[
        str | None, typer.Argument(help="Its id, the id's beginning, or a name.", metavar="ID")
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Let NAME name a generation from now on, by default the current one.

    HUMMING_TABLE=@NAME then serves it, whatever is tuned meanwhile.
    """
    with open_store(database_url(db), create=False) as store:
        chosen = _named(name)
        id = _found(store, "current" if generation is None else generation)
        store.generations.name(chosen, id)
        _tell(store, chosen, id, db, as_json)


@app.command("back")
def back(name: Name = None, db: Database = None, as_json: AsJson = False) -> None:
    """Let NAME name the generation before again, of those that it named."""
    _step(name, -1, db, as_json)


@app.command("forward")
def forward(name: Name = None, db: Database = None, as_json: AsJson = False) -> None:
    """Let NAME name the generation after, of those that it named: takes back a step back."""
    _step(name, 1, db, as_json)


def _step(name: str | None, by: int, db: str | None, as_json: bool) -> None:
    with open_store(database_url(db), create=False) as store:
        chosen = _named(name)
        id = store.generations.step(chosen, by)
        _tell(store, chosen, id, db, as_json)


def _named(name: str | None) -> str:
    if name is None:
        raise UsageError("a generation's name must be given, but got none; write such as prod")
    check_name(name)
    return name


def _found(store: Store, text: str) -> str:
    """The id that an id, its beginning or a name means. Raises UsageError."""
    known = store.generations.list()
    for one in known:
        if text in one.names:
            return one.id
    alike = [one.id for one in known if len(text) >= 4 and one.id.startswith(text)]
    if len(alike) != 1:
        raise UsageError(
            f"a generation must be named by its id, 4 of its first digits or a name, but '{text}' "
            f"names {len(alike)} of {len(known)}; see humming-tune table list"
        )
    return alike[0]


def _tell(store: Store, name: str, id: str, db: str | None, as_json: bool) -> None:
    path = fetch(store, id, tables_dir(db), name)
    if as_json:
        print_json({"name": name, "id": id, "table": None if path is None else str(path)})
    else:
        say(f"'{name}' names {id}")


def _row(one: Generation) -> dict[str, object]:
    return {
        "id": one.id,
        "entries": one.entries,
        "host": one.host,
        "created_at": one.created_at.isoformat(),
        "names": list(one.names),
    }
