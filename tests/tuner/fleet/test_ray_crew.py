"""A real Ray cluster of two nodes on this machine, a CPU device each: every problem tuned once, the
same evidence as alone, a killed actor survived. Needs the extra `ray`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from humming.errors import UsageError
from humming.jit.detect import cpu_device
from humming.jit.identity import here
from tuner.fleet.cluster import RayCrew, _require_reach
from tuner.store.open import open_store
from tuner.store.schema import leases
from tuner.store.store import Store

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "torch_dtype": "float32",
}
ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    try:
        made.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        made.wait_for_nodes(60)
        yield made.address
    finally:
        made.shutdown()


def _command(model: Path, file: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "tuner.cli", "--model", str(model), "--format", "int8"),
        *("--m", "1,2,4,8", "--db", str(file), "--budget", "240s", "--json", *more),
    ]


def _holder(file: Path) -> int | None:
    """The process of an actor that tunes: one that holds a lease."""
    with open_store(str(file)) as store:
        holders = select(leases.c.pid)
        return store._connections.read(lambda c: c.execute(holders).scalars().first())


def _evidence(store: Store) -> Counter[tuple[str, str | None, str, str]]:
    identity = here(cpu_device(1))
    return Counter(
        (past.problem_id, past.config_id, past.kind, past.outcome)
        for past in store.measurements(identity)
    )


@pytest.mark.slow
def test_two_nodes_give_the_evidence_of_one_and_survive_a_kill(
    cluster: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    alone, crew = tmp_path / "alone.db", tmp_path / "crew.db"
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(_command(tmp_path, alone, "--device", "cpu"), env=one, check=True)
    run = subprocess.Popen(
        _command(tmp_path, crew, "--ray", cluster),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    killed, give_up = None, time.monotonic() + 120
    while killed is None and time.monotonic() < give_up and run.poll() is None:
        killed = _holder(crew)
        time.sleep(0.05)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    said, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    report = json.loads(said)
    assert report["settled"] == len(report["problems"]) == 8
    identity = here(cpu_device(1))
    with open_store(str(alone)) as serial, open_store(str(crew)) as shared:
        assert shared.settled(identity).keys() == serial.settled(identity).keys()
        hosts = shared.measurements(identity)
        assert len({past.pid for past in hosts}) >= 2  # both nodes had work
        found, expected = _evidence(shared), _evidence(serial)
        assert max(found.values()) == 1
        both = (shared.settled(identity), serial.settled(identity))
        whole = [p for p in both[0] if both[0][p].reason == both[1][p].reason == "exhausted"]
        assert whole
        for problem in whole:
            assert {key for key in found if key[0] == problem} == {
                key for key in expected if key[0] == problem
            }
        served = {w.problem.id for w in shared.winners(identity)}  # between the anchors too
        assert served >= shared.settled(identity).keys()
        assert shared.leased(identity) == set()


@pytest.mark.slow
def test_no_cluster_at_an_address_is_told_in_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(UsageError, match=r"no Ray cluster answers at 127\.0\.0\.1:9"):
        RayCrew("127.0.0.1:9", str(tmp_path / "x.db")).__enter__()


def test_a_file_of_one_host_is_no_database_for_several(tmp_path: Path) -> None:
    nodes = [{"NodeManagerHostname": name} for name in ("a", "b")]
    with pytest.raises(UsageError, match=r"--ray over 2 hosts needs a database.*postgresql://"):
        _require_reach(str(tmp_path / "x.db"), nodes)
    _require_reach(str(tmp_path / "x.db"), nodes[:1])
    _require_reach("postgresql://me@host/x", nodes)
