"""Two devices of this host as one crew: each problem tuned once, the same evidence as alone, a
killed member is replaced. Real processes on real kernels."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from humming.errors import UsageError
from humming.jit.detect import cpu_device
from humming.jit.identity import here
from humming.spec.device import Device
from tuner.fleet.crews import crew_of
from tuner.fleet.local import LocalCrew
from tuner.pipeline import Job, tune
from tuner.planning.budget import Budget
from tuner.progress import Watch
from tuner.store.open import open_store
from tuner.store.store import Store

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "torch_dtype": "float32",
}
PLAIN = replace(cpu_device(1), isa=())
"""This CPU without its vector instructions, of which a few configs are all there are."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(TINY))
    return Job(folder, PLAIN, (1,), format="int8")


def _evidence(store: Store) -> Counter[tuple[str, str | None, str, str]]:
    return Counter(
        (past.problem_id, past.config_id, past.kind, past.outcome)
        for past in store.measurements(here(PLAIN))
    )


def _tune(job: Job, file: Path, devices: list[Device]) -> tuple[Store, list[str]]:
    watch, notes = Watch(Console(stderr=True), quiet=True), []
    watch.note = notes.append  # type: ignore[method-assign]
    crew = LocalCrew(str(file), devices) if devices else None
    store = open_store(str(file))
    tuned = tune(job, store, file.with_suffix(".tables"), Budget(240), watch, crew)
    assert tuned.table is not None and tuned.measured > 0
    return store, notes


def _kill_one_that_tunes(file: Path, until: float, killed: list[int]) -> None:
    """SIGKILL to the process that holds a lease."""
    from sqlalchemy import select

    from tuner.store.schema import leases

    with open_store(str(file)) as store:
        while time.monotonic() < until and not killed:
            pids = store._connections.read(
                lambda c: list(c.execute(select(leases.c.pid)).scalars())
            )
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
            time.sleep(0.05)


@pytest.mark.slow
def test_two_devices_and_a_killed_member_give_the_evidence_of_one_alone(job, tmp_path) -> None:
    alone, _ = _tune(job, tmp_path / "alone.db", [])
    file, killed = tmp_path / "crew.db", []
    open_store(str(file)).close()
    killer = threading.Thread(
        target=_kill_one_that_tunes, args=(file, time.monotonic() + 60, killed)
    )
    killer.start()
    crew, notes = _tune(job, file, [PLAIN, PLAIN])
    killer.join()
    assert killed and any("ended by SIGKILL; started again" in note for note in notes)
    with alone, crew:
        assert crew.settled(here(PLAIN)).keys() == alone.settled(here(PLAIN)).keys()
        assert {s.reason for s in crew.settled(here(PLAIN)).values()} == {"exhausted"}
        assert _evidence(crew) == _evidence(alone)
        assert max(_evidence(crew).values()) == 1
        of = [{w.problem.id for w in store.winners(here(PLAIN))} for store in (alone, crew)]
        assert of[0] == of[1] == crew.settled(here(PLAIN)).keys()
        assert crew.suspects(here(PLAIN)) == {} and crew.leased(here(PLAIN)) == set()


@pytest.mark.slow
def test_a_member_that_cannot_work_says_why(job, tmp_path) -> None:
    with open_store(str(tmp_path / "x.db")) as store:
        crew = LocalCrew("postgresql://someone:s3cret@127.0.0.1:9/none", [PLAIN])
        watch = Watch(Console(stderr=True), quiet=True)
        watch.note = lambda text: None  # type: ignore[method-assign]
        with pytest.raises(UsageError, match="cannot reach postgresql://someone@127") as caught:
            tune(job, store, tmp_path, Budget(60), watch, crew)
        assert "s3cret" not in str(caught.value) + repr(crew)


def test_words_that_do_not_go_together() -> None:
    with (
        pytest.raises(UsageError, match="exclude each other"),
        crew_of("x.db", True, "auto", "auto"),
    ):
        pass
    with pytest.raises(UsageError, match="leave --device away"), crew_of("x.db", True, None, "cpu"):
        pass
    with crew_of("x.db", False, None, "cpu") as crew:
        assert crew is None
