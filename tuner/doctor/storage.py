"""Checks of storage: the folder of compiled kernels, disks, the database, the tuned table.

Nothing is made but files without a name, which are gone at once.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections import Counter
from pathlib import Path

from humming import settings
from humming.dispatch.intervals import TunedTable
from humming.dispatch.seen import as_seen
from humming.dispatch.shipped import shipped_table
from humming.dispatch.sources import load_table
from humming.dispatch.tables import current_path, read_table
from humming.errors import HummingError
from humming.jit.identity import here
from humming.spec.identity import TIERS, Identity, Tier, differences, tier
from humming.spec.naming import counted
from humming.spec.problem import Problem
from tuner.doctor.finding import Finding, Surroundings, fail, failed_by, ok, warn
from tuner.store.address import parse
from tuner.store.disks import nearest, require_local
from tuner.store.migrate import check_known, revision
from tuner.store.schema import REVISION

SCARCE_BYTES, FULL_BYTES = 1 << 30, 16 << 20


def cache(_: Surroundings) -> Finding:
    """The folder of compiled kernels: it can be written, and what lies there may be executed."""
    folder = settings.cache_dir() / "kernels"
    place, refused = nearest(folder), unwritable(folder)
    elsewhere = "export HUMMING_CACHE to a folder of a local disk"
    if refused is not None and refused.errno == errno.ENOSPC:
        return fail(f"the disk of {folder} is full", f"free some space, or {elsewhere}")
    if refused is not None:
        entries = len(list(folder.glob("*.so"))) + len(list(folder.glob("*.cubin")))
        return warn(
            f"{folder} cannot be written ({refused.strerror}); it holds "
            f"{counted(entries, 'kernel')}, and each process compiles the others anew",
            f"make it writable, or {elsewhere}",
        )
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        return fail(f"{folder} lies on a disk mounted with noexec", elsewhere)
    if folder.is_dir() and folder.stat().st_mode & stat.S_IWOTH:
        return warn(
            f"everyone may write {folder}, and so run code as you", f"chmod go-w '{folder}'"
        )
    state = "made on first use"
    if folder.is_dir():
        state = counted(len(list(folder.iterdir())), "entry", "entries")
    return ok(f"{folder} can be written ({state})")


def disk(_: Surroundings) -> Finding:
    """Free space where kernels, data and the compilers' temporary files go."""
    tight: dict[int, tuple[int, Path]] = {}
    for folder in (settings.cache_dir(), settings.data_dir(), Path(tempfile.gettempdir())):
        place = nearest(folder)
        free = shutil.disk_usage(place).free
        tight[place.stat().st_dev] = (free, folder)
    free, folder = min(tight.values())
    found = f"{free / 2**30:.1f} GiB free for {folder}"
    fix = "free some space, or move HUMMING_CACHE, HUMMING_DATA and TMPDIR to another disk"
    if free < FULL_BYTES:
        return fail(found, fix)
    return warn(found, fix) if free < SCARCE_BYTES else ok(found)


def database(s: Surroundings) -> Finding:
    """Whether the database can be reached and written, and the revision of its schema."""
    try:
        url = settings.database_url(s.database)
        address = parse(url)
        if address.path is not None:
            require_local(address.path)
        found = revision(url)
        check_known(found, address)
    except HummingError as error:
        return failed_by(error)
    if address.path is not None:
        place = address.path if address.path.exists() else address.path.parent
        refused = unwritable(place)
        if refused is not None:
            return fail(
                f"{address.shown} cannot be written ({refused.strerror})",
                "make its folder writable, or name another database with --db or HUMMING_DB",
            )
    if found is None:
        return ok(f"{address.shown} is not there yet, the first humming-tune makes it")
    if found != REVISION:
        return warn(f"{address.shown} has revision {found}, ours is {REVISION}", _upgrade(s))
    return ok(f"{address.shown} has revision {found}")


def table(s: Surroundings) -> Finding:
    """Whether a tuned table serves this device: exact, compatible, stale or none."""
    tune = "humming-tune --model config.json"
    try:
        found = _table(s.database)
    except HummingError as error:
        return failed_by(error)
    identity = here(s.device)
    if found is None or not found.entries:
        return warn(f"no tuned table yet, so {_rest(identity)} serves", tune)
    found = as_seen(found, identity)
    tiers = _layers(found, identity)
    count = ", ".join(f"{tiers[name]} {name}" for name in TIERS if tiers[name])
    text = f"table {found.id[:8]}: layers {count}"
    if tiers["exact"] or tiers["compatible"]:
        return ok(text)
    fits = "stale" if tiers["stale"] else "none"
    text += f"; none was tuned as here: {_difference(found, identity)}"
    return warn(
        f"{text} ({'it still serves' if fits == 'stale' else 'the heuristic serves'})", tune
    )


def _layers(found: TunedTable, identity: Identity) -> Counter[Tier]:
    """How many layers of each device have a record of a tier, and none of a better one."""
    best: dict[tuple[str, Problem], Tier] = {}
    for entry in sorted(found.entries, key=lambda one: -TIERS.index(tier(one.identity, identity))):
        best[entry.identity.device.id, entry.problem] = tier(entry.identity, identity)
    return Counter(best.values())


def _table(database: str | None) -> TunedTable | None:
    url = settings.database_url(database)
    named = database is None and settings.table_name() is not None
    if named or not url.startswith("sqlite:"):
        return load_table(None if named else url)
    path = current_path(settings.tables_dir(url))
    return None if path is None else read_table(path)


def _rest(identity: Identity) -> str:
    """What serves without a table of the user's."""
    shipped = shipped_table(identity.device)
    entries = as_seen(shipped, identity).entries if shipped else ()
    layers = sum(tier(one.identity, identity) != "none" for one in entries)
    if not layers:
        return "the heuristic"
    return f"the shipped table ({counted(layers, 'layer')}), then the heuristic"


def _difference(found: TunedTable, identity: Identity) -> str:
    """The first field in which the nearest entry differs."""
    unlike = min((differences(entry.identity, identity) for entry in found.entries), key=len)
    field, (theirs, ours) = next(iter(unlike.items()))
    return f"{field} {theirs} there, {ours} here"


def _upgrade(s: Surroundings) -> str:
    named = f" --db '{parse(settings.database_url(s.database)).shown}'" if s.database else ""
    return f"humming-tune db upgrade{named}"


def unwritable(path: Path) -> OSError | None:
    """Why nothing can be written into the folder `path` (or to the file), or made there where it is
    absent; None where it can."""
    place = nearest(path)
    try:
        if place.is_file():
            if place != path:
                raise NotADirectoryError(errno.ENOTDIR, "a file is in its way")
            with place.open("r+b"):
                pass
            place = place.parent
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None
