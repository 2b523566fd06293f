"""kill -9 at random moments, and many processes at once: nothing acknowledged is lost, nothing
stands there twice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text
from store_samples import CONFIG, HERE, PROBLEM, draft

from tuner.store.open import open_store
from tuner.store.store import Store

WRITER = Path(__file__).with_name("store_writer.py")
ROOT = Path(__file__).parents[3]


def _start(url: str, first: int, end: int) -> subprocess.Popen[str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, str(WRITER), url, str(first), str(end)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


def _kill_at_random(url: str, chance: random.Random) -> dict[int, str]:
    """The trials that a writer acknowledged before it was killed."""
    writer = _start(url, 1, 10**6)
    assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    time.sleep(chance.uniform(0, 0.25))
    writer.send_signal(signal.SIGKILL)
    said = writer.communicate()[0]
    assert writer.returncode == -signal.SIGKILL
    lines = [line.split() for line in said.splitlines(keepends=True) if line.endswith("\n")]
    return {int(m): name for m, name in lines}


def _survives(url: str, kills: int) -> None:
    chance = random.Random(kills)
    acknowledged: dict[int, str] = {}
    for death in range(1, kills + 1):
        told = _kill_at_random(url, chance)
        assert not told.keys() & acknowledged.keys(), "a finished trial was repeated"
        acknowledged.update(told)
        with open_store(url) as store:
            trials = store.measurements(HERE)
            found = {m.problem.m: m.id for m in trials}
            assert len(found) == len(trials), "a trial stands there twice"
            assert acknowledged.items() <= found.items(), "an acknowledged trial is lost"
            # At most the last trial of each life was written but not yet acknowledged.
            assert len(found) <= len(acknowledged) + death
            assert len(store.suspects(HERE)) <= 1
    assert acknowledged


def _sqlite_is_sound(store: Store) -> bool:
    check = text("PRAGMA integrity_check")
    return bool(store._connections.read(lambda c: c.execute(check).scalar()) == "ok")


def test_kill_9_loses_and_repeats_nothing(url: str) -> None:
    _survives(url, kills=5)
    if url.startswith("sqlite"):
        with open_store(url) as store:
            assert _sqlite_is_sound(store)


@pytest.mark.slow
def test_twenty_kills_lose_and_repeat_nothing(
    url: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("kills", 20)
    _survives(url, kills=20)


def test_many_writers_and_readers_share_one_database(url: str) -> None:
    writers = [_start(url, 100 * i + 1, 100 * i + 26) for i in range(4)]
    with open_store(url) as store:
        seen = 0
        while any(writer.poll() is None for writer in writers):
            now = len(store.measurements(HERE))
            assert now >= seen
            seen = now
            time.sleep(0.05)
        said = [writer.communicate() for writer in writers]
        assert [(w.returncode, err) for w, (_, err) in zip(writers, said, strict=True)] == [
            (0, "")
        ] * 4
        counts = Counter(m.problem.m for m in store.measurements(HERE))
        assert counts == Counter(100 * i + j for i in range(4) for j in range(1, 26))
        assert store.suspects(HERE) == {}


def test_a_long_read_stops_no_writer(url: str) -> None:
    with open_store(url) as reading, open_store(url) as writing:

        def slowly(connection: object) -> None:
            count = text("SELECT count(*) FROM measurements")
            before = connection.execute(count).scalar()  # type: ignore[attr-defined]
            writing.finish(writing.begin(HERE, PROBLEM, CONFIG), draft())
            assert before == 0

        reading._connections.read(slowly)
        assert len(reading.measurements(HERE)) == 1


def test_a_forked_child_leaves_its_parents_connections_alone(url: str) -> None:
    with open_store(url) as store:
        store.finish(None, draft())
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.finish(None, draft())
                store.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        store.finish(None, draft())
        assert len(store.measurements(HERE)) == 3
