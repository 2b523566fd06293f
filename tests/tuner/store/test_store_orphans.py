"""Launches that never come back: suspects, second attempts, quarantine. Evidence is
test_store_evidence.py.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import func, select, update
from store_samples import CONFIG, HERE, OTHER, PROBLEM, draft, identity

from humming.spec.config import config_id
from tuner.store import process
from tuner.store.open import open_store
from tuner.store.schema import in_flight
from tuner.store.store import Store

PAIR = (PROBLEM.id, config_id(CONFIG))


def _begin_and_die(url: str) -> None:
    open_store(url).begin(HERE, PROBLEM, CONFIG)
    os._exit(9)


def _lose_a_launch(url: str) -> None:
    child = multiprocessing.get_context("spawn").Process(target=_begin_and_die, args=(url,))
    child.start()
    child.join()
    assert child.exitcode == 9


def _rewrite(store: Store, **values: Any) -> None:
    store._connections.write(lambda c: c.execute(update(in_flight).values(**values)))


def test_a_launch_of_a_living_process_is_no_suspect(store: Store) -> None:
    store.begin(HERE, PROBLEM, CONFIG)
    assert store.suspects(HERE) == {} and store.quarantined(HERE) == set()


def test_a_lost_launch_is_tried_once_more_and_then_quarantined(url: str) -> None:
    with open_store(url) as store:
        _lose_a_launch(url)
        assert store.suspects(HERE) == {PAIR: 1} and store.quarantined(HERE) == set()
        _lose_a_launch(url)
        assert store.suspects(HERE) == {PAIR: 2} and store.quarantined(HERE) == {PAIR}


def test_a_second_attempt_that_comes_back_clears_the_suspicion(url: str) -> None:
    with open_store(url) as store:
        _lose_a_launch(url)
        ticket = store.begin(HERE, PROBLEM, CONFIG)
        assert ticket.attempts == 2
        store.finish(ticket, draft())
        assert store.suspects(HERE) == {} and store.quarantined(HERE) == set()
        assert store.begin(HERE, PROBLEM, CONFIG).attempts == 1


def test_an_abandoned_launch_leaves_no_trace(store: Store) -> None:
    ticket = store.begin(HERE, PROBLEM, CONFIG)
    store.abandon(ticket)
    _rewrite(store, pid=2**22 + 1)
    assert store.suspects(HERE) == {} and store.measurements(HERE) == []


def test_a_crash_is_quarantined_at_once(store: Store) -> None:
    store.finish(store.begin(HERE, PROBLEM, CONFIG), draft(outcome="crashed", detail="SIGSEGV"))
    store.finish(None, draft(config=OTHER, outcome="wrong_result"))
    assert store.quarantined(HERE) == {PAIR}
    store.finish(None, draft(config=OTHER, outcome="timeout"))
    assert len(store.quarantined(HERE)) == 2


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({"product_version": "0.2.0"}, True),
        ({"policy": "cpu-cold-median-2"}, True),
        ({"source_hash": "1" * 32}, False),
        ({"driver": "6.2"}, False),
        ({"compiler_version": "g++ 14"}, False),
    ],
)
def test_quarantine_is_lifted_when_what_crashed_has_changed(
    store: Store, changes: dict[str, str], holds: bool
) -> None:
    store.finish(None, draft(outcome="crashed"))
    assert store.quarantined(identity(**changes)) == ({PAIR} if holds else set())


def test_a_reused_pid_is_another_process(store: Store) -> None:
    store.begin(HERE, PROBLEM, CONFIG)
    _rewrite(store, process_started="another boot:1")
    assert store.suspects(HERE) == {PAIR: 1}


def test_a_launch_of_another_host_is_lost_after_an_hour(store: Store) -> None:
    store.begin(HERE, PROBLEM, CONFIG)
    _rewrite(store, host="elsewhere", pid=1, process_started="x")
    assert store.suspects(HERE) == {}
    _rewrite(store, started_at=datetime.now(timezone.utc) - timedelta(minutes=61))
    assert store.suspects(HERE) == {PAIR: 1}


def test_a_launch_of_another_container_of_this_host_is_lost_after_an_hour(store: Store) -> None:
    store.begin(HERE, PROBLEM, CONFIG)
    _rewrite(store, pid=2**22 + 1, process_started="a boot:1 in pid:[1]")
    assert store.suspects(HERE) == {}
    assert store.begin(HERE, PROBLEM, CONFIG).attempts == 1
    count = select(func.count()).select_from(in_flight)
    assert store.connections.read(lambda c: c.execute(count).scalar_one()) == 2
    _rewrite(store, started_at=datetime.now(timezone.utc) - timedelta(minutes=61))
    assert store.suspects(HERE) == {PAIR: 1}


def test_a_process_of_another_pid_namespace_is_not_taken_for_dead() -> None:
    code = (
        "import json; from tuner.store import process; print(json.dumps(process.stamp())); input()"
    )
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no namespaces can be made here")
    child = subprocess.Popen(
        [*apart, sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    theirs = json.loads(child.stdout.readline())
    host, pid, since = theirs["host"], theirs["pid"], theirs["process_started"]
    assert host == process.host() and pid < 10
    assert process.elsewhere(host, since) and not process.gone(host, pid, since)
    child.communicate("\n")
    ours = str(process.stamp()["process_started"])
    assert not process.elsewhere(host, ours) and process.gone(host, 2**22 + 1, ours)


def test_a_process_is_known_by_its_start_and_a_zombie_is_gone() -> None:
    assert process.started(os.getpid()) == process.started(os.getpid()) is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    first = process.started(child.pid)
    assert first is not None and first != process.started(os.getpid())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.started(child.pid) is None
    child.communicate()
    assert process.started(child.pid) is None
