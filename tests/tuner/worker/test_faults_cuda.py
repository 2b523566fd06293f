"""Bad kernels on a GPU while a model is tuned: the run ends by itself with the others intact; a
second run touches no offender and repeats no finished trial."""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest

from benchmarks.tuned import model_config
from humming.jit.cache import compiled
from humming.jit.detect import cuda_devices
from humming.spec.config import config_id
from tests.tuner.worker.hostile_cuda import hostile_cuda_kernel
from tests.tuner.worker.test_faults import enough, run  # noqa: F401  (fixtures)
from tuner.searching import compile_pool, trials

OUTCOMES = {
    "illegal_access": "crashed",
    "trap": "crashed",
    "hang": "timeout",
    "tail": "wrong_result",
    "past_out": "wrong_result",
    "racy": "wrong_result",
}


@pytest.fixture
def chosen(monkeypatch) -> dict[str, str]:
    """Config id -> what it was made into: candidates of the family skinny, as they are compiled."""
    found: dict[str, str] = {}
    lock, waiting, seen = threading.Lock(), list(OUTCOMES), set()

    def instead(config, problem, device, timeout_s=60.0):
        key = config_id(config)
        with lock:
            fresh = key not in seen and config.family == "skinny" and len(seen) > 0
            seen.add(key)
            if fresh and waiting:
                found[key] = waiting.pop(0)
        if key in found:
            return hostile_cuda_kernel(found[key], config, problem, device)
        return compiled(config, problem, device, timeout_s)

    monkeypatch.setattr(compile_pool, "compiled", instead)
    monkeypatch.setattr(trials, "STALL_S", 6.0)  # a busy machine starts slowly
    return found


@pytest.mark.gpu
def test_a_tuning_survives_bad_kernels_and_a_second_one_leaves_them_alone(
    tmp_path,
    chosen,
    enough,  # noqa: F811
):
    (tmp_path / "config.json").write_text(json.dumps(model_config(1024, 1024, "int4g128")))
    device = cuda_devices()[0]
    enough["passed"] = 12
    rows, winners, _ = run(tmp_path, device=device, m=16)
    outcomes = {key: outcome for key, outcome, _ in rows}
    tried = {key: OUTCOMES[name] for key, name in chosen.items() if key in outcomes}
    assert set(tried.values()) == set(OUTCOMES.values())
    assert tried.items() <= outcomes.items()
    assert len(winners) == 1 and config_id(winners[0].config) not in chosen
    enough["passed"] = 20
    again, winners, _ = run(tmp_path, resume=True, device=device, m=16)
    assert len(again) > len(rows) and {row[2] for row in rows} <= {row[2] for row in again}
    assert max(Counter(key for key, _, _ in again).values()) == 1
    assert len(winners) == 1 and config_id(winners[0].config) not in chosen
