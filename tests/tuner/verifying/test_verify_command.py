"""`humming-tune verify`: what serves is measured anew, and what is slower or wrong is demoted."""

import json
from dataclasses import replace

import pytest

from humming.dispatch.heuristics import heuristic
from humming.dispatch.tables import current_table
from humming.jit.identity import here, serving_device
from humming.settings import tables_dir
from humming.spec.problem import Problem
from tests.tuner.test_cli import call, expect_one_sentence  # noqa: F401  (fixtures)
from tuner.promoting.verdict import Interval
from tuner.store.open import open_store
from tuner.verifying import checking
from tuner.verifying.checking import outcome_of
from tuner.verifying.choosing import served, stratified
from tuner.verifying.shown import mean_regret, regret_interval
from tuner.worker.messages import Raced, Trialled

CALM = {"waited_share": 0.0}
LAYER = Problem("int4g128", n=64, k=256, m=1)


@pytest.fixture(autouse=True)
def _young(monkeypatch):
    """The budget counts from the start of the process, which here is that of the tests."""
    monkeypatch.setattr("tuner.commands.records.process_age_s", lambda: 0.0)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/tuning.db"


def other(problem):
    """A legal config that is not the heuristic's."""
    config = heuristic(problem, serving_device())
    return replace(config, prefetch_bytes=64 if config.prefetch_bytes != 64 else 128)


def promoted(url, problem=LAYER, identity=None, config=None):
    with open_store(url) as store:
        return store.promote(
            identity or here(serving_device()),
            problem,
            config or other(problem),
            us=10.0,
            heuristic_us=11.0,
            evidence={"serves": [1, 4]},
        )


@pytest.fixture
def worker(monkeypatch):
    """A worker that says what the test wants, in place of a process: {"ratio", "outcome"}."""
    says = {"ratio": 1.0, "outcome": "ok", "conditions": CALM}

    class Fake:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def open(self, request, timeout_s):
            assert (request.m_low, request.m_high) == (1, 4)

        def ask(self, request, timeout_s):
            if type(request).__name__ == "Trial":
                return Trialled(says["outcome"], (1.0,), 0.1, "out[0, 0] is nan")
            rounds = 12
            theirs, ours = (100.0,) * rounds, (100.0 * says["ratio"],) * rounds
            return Raced((theirs, ours), (says["conditions"],) * rounds)

    monkeypatch.setattr(checking, "Worker", Fake)
    return says


def verified(call, *words):  # noqa: F811
    code, out, err = call("verify", "--device", "cpu", "--json", *words)
    assert code == 0, err
    return json.loads(out)


def serving(url):
    with open_store(url) as store:
        return {w.problem.id: w for w in store.winners(here(serving_device()))}


def test_what_holds_stays_and_nothing_is_written(call, url, worker):  # noqa: F811
    before = promoted(url)
    worker["ratio"] = 0.8
    report = verified(call)
    (row,) = report["records"]
    assert (row["outcome"], row["demoted"], row["ratio"]) == ("faster", False, 0.8)
    assert report["mean_regret"] == 0.0 and report["table"] is None
    assert serving(url)[LAYER.id].id == before.id


def test_what_became_slower_is_demoted_and_the_table_is_written(call, url, worker):  # noqa: F811
    before = promoted(url)
    worker["ratio"] = 1.3
    report = verified(call)
    (row,) = report["records"]
    assert (row["outcome"], row["demoted"], row["record"]) == ("slower", True, before.id)
    assert row["regret"] == pytest.approx(0.3)
    assert report["mean_regret_low"] == report["mean_regret_high"] == pytest.approx(0.3)
    now = serving(url)[LAYER.id]
    assert now.config == heuristic(LAYER, serving_device())
    assert now.evidence["verified"] == before.id and now.evidence["serves"] == [1, 4]
    table = current_table(tables_dir(url))
    assert table is not None and str(table.path) == report["table"]
    assert verified(call)["tuned"] == 0


def test_a_tie_keeps_what_serves(call, url, worker):  # noqa: F811
    before = promoted(url)
    worker["ratio"] = 1.01
    assert verified(call)["records"][0]["outcome"] == "tie"
    assert serving(url)[LAYER.id].id == before.id


def test_wrong_numbers_are_demoted_untimed(call, url, worker):  # noqa: F811
    promoted(url)
    worker["outcome"] = "wrong_result"
    (row,) = verified(call)["records"]
    assert (row["outcome"], row["ratio"], row["demoted"]) == ("wrong", None, True)
    assert "nan" in row["detail"]


def test_a_busy_machine_decides_nothing(call, url, worker):  # noqa: F811
    before = promoted(url)
    worker.update(ratio=2.0, conditions={"waited_share": 0.4})
    (row,) = verified(call)["records"]
    assert row["outcome"] == "unsure" and "waited 40%" in row["detail"]
    assert serving(url)[LAYER.id].id == before.id


def test_what_holds_under_a_new_compiler_serves_it_as_its_own(call, url, worker):  # noqa: F811
    stale = replace(here(serving_device()), compiler_version="g++ 1.0")
    before = promoted(url, identity=stale)
    assert LAYER.id not in serving(url)
    (row,) = verified(call)["records"]
    assert (row["tier"], row["outcome"]) == ("stale", "tie")
    now = serving(url)[LAYER.id]
    assert now.config == before.config and now.identity.id != before.identity.id


def test_nothing_to_verify_is_one_sentence(call, url):  # noqa: F811
    open_store(url).close()
    expect_one_sentence(call("verify", "--device", "cpu"), "humming-tune --model")
    expect_one_sentence(call("verify", "--db", "absent.db"), "absent.db")
    expect_one_sentence(call("verify", "--sample", "0"), "--sample >= 1")


def test_a_config_that_is_the_heuristic_s_needs_no_check(call, url):  # noqa: F811
    promoted(url, config=heuristic(LAYER, serving_device()))
    assert verified(call)["tuned"] == 0
    sentence = "1 record serves the heuristic's own config, so there is nothing to compare\n"
    assert call("verify", "--device", "cpu")[1].endswith(sentence)
    promoted(url, replace(LAYER, n=128), config=heuristic(replace(LAYER, n=128), serving_device()))
    assert "2 records serve the heuristic's own" in call("verify", "--device", "cpu")[1]


def test_the_sample_is_spread_and_stale_ones_come_first(url):
    identity = here(serving_device())
    stale = replace(identity, driver="other")
    layers = [LAYER.at(m) for m in (1, 2, 3, 64, 70)]
    for problem in layers:
        promoted(url, problem, identity)
    old = promoted(url, replace(LAYER, n=80), stale)
    with open_store(url) as store:
        found = served(store.winners(), identity)
    assert len(found) == 6
    chosen = stratified(found, 4)
    assert chosen[0][0].id == old.id
    assert {w.problem.m.bit_length() for w, _ in chosen} == {1, 2, 7}
    assert stratified(found, 4) == chosen
    assert len(stratified(found, 100)) == 6


def test_the_better_tier_serves(url):
    identity = here(serving_device())
    promoted(url, identity=replace(identity, driver="other"))
    ours = promoted(url)
    promoted(url, identity=replace(identity, driver="third"))
    promoted(url, identity=replace(identity, source_hash="0"))
    with open_store(url) as store:
        ((winner, fit),) = served(store.winners(), identity)
    assert (winner.id, fit) == (ours.id, "exact")


def test_outcomes_follow_the_rule_of_promotion():
    same = [100.0] * 12
    assert outcome_of(same, same) == "tie"
    assert outcome_of([90.0] * 12, same) == "faster"
    assert outcome_of([110.0] * 12, same) == "slower"
    assert outcome_of([101.0] * 12, same) == "tie"


def test_a_real_record_is_measured(call, url):  # noqa: F811
    promoted(url)
    (row,) = verified(call, "--budget", "60s")["records"]
    assert row["outcome"] in ("faster", "tie", "slower", "unsure")


def test_what_was_demoted_serves_no_longer_after_ctrl_c(call, url, worker, monkeypatch):  # noqa: F811
    promoted(url)
    promoted(url, replace(LAYER, n=128))
    worker["ratio"] = 1.3
    told = []

    def stop(found):
        told.append(found)
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "line_of", stop)
    code, _, _ = call("verify", "--device", "cpu")
    assert code == 130 and len(told) == 1
    problem = told[0].winner.problem
    (entry,) = (e for e in current_table(tables_dir(url)).entries if e.problem.n == problem.n)
    assert entry.intervals[0].config == heuristic(problem, serving_device())


def test_the_interval_of_regret_holds_its_mean_and_narrows_with_more_records():
    def of(ratio, low, high):
        return checking.Checked(None, "exact", "tie", Interval(ratio, low, high))

    few = (of(1.02, 0.99, 1.05), of(0.9, 0.88, 0.93))
    low, high = regret_interval(few)
    assert 0.0 <= low <= mean_regret(few) <= high <= 0.05
    more_low, more_high = regret_interval(few * 20)
    assert more_high - more_low < (high - low) / 2
    assert regret_interval(()) is None
