"""Identity tiers as the user meets them: what serves after a driver, a kernel or the machine
changed, and what `explain` says of it."""

import json
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.dispatch.dispatcher import lookup, resolve
from humming.dispatch.heuristics import heuristic
from humming.dispatch.intervals import Interval, TableEntry, TunedTable
from humming.dispatch.sources import load_table
from humming.dispatch.tables import write_generation
from humming.jit.identity import here, serving_device
from humming.settings import tables_dir
from humming.spec.device import Device
from humming.spec.identity import RULES, TIERS, Identity, differences, tier
from humming.spec.problem import Problem
from tests.tuner.test_cli import call, expect_one_sentence, model  # noqa: F401  (fixtures)
from tuner.store.open import open_store
from tuner.store.tables import publish
from tuner.verifying.choosing import served, stratified

GPU = Device(
    "cuda",
    "NVIDIA H200",
    "sm90",
    cache_bytes=50 * 2**20,
    uuid="GPU-1",
    compute_capability=(9, 0),
    sm_count=132,
    smem_bytes_per_block=232448,
    smem_bytes_per_sm=233472,
    registers_per_sm=65536,
    memory_clock_khz=3201000,
    power_limit_w=700,
)
H200 = Identity(GPU, "580.65.06", "nvrtc", "13.0.88", "ab" * 16, "0.1.0", "policy-1")
LAYER = Problem("int4g128", n=4096, k=4096, m=0, layout="cuda_n16k64")
CHANGES = {
    "driver": "590.10",
    "compiler_version": "13.1.0",
    "source_hash": "cd" * 16,
    "product_version": "9.9",
    "policy": "policy-2",
}


def table(identity):
    interval = Interval(0, 5, 1, heuristic(LAYER.at(1), GPU), 5.0, 6.0, "ee" * 16)
    return TunedTable("t", (TableEntry(identity, LAYER, (interval,)),))


def serves(record, machine):
    """The source and tier by which `record` serves m = 1 on `machine`."""
    dispatch = lookup(resolve(LAYER, machine, table(record)), 1)
    return dispatch.source, dispatch.tier


def test_every_field_has_a_rule():
    assert RULES.keys() == H200._fields().keys() - {"device.uuid"}
    assert set(RULES.values()) <= set(TIERS)


def test_another_driver_is_stale_and_served_another_kernel_source_is_refused():
    assert serves(H200, H200) == ("tuned", "exact")
    assert serves(H200, replace(H200, driver="590.10")) == ("tuned", "stale")
    assert serves(H200, replace(H200, compiler_version="13.1")) == ("tuned", "stale")
    assert serves(H200, replace(H200, product_version="9")) == ("tuned", "compatible")
    assert serves(H200, replace(H200, source_hash="cd" * 16)) == ("heuristic", None)


def test_another_card_of_the_same_model_is_exact_a_capped_one_is_stale():
    assert serves(H200, replace(H200, device=replace(GPU, uuid="GPU-2"))) == ("tuned", "exact")
    capped = replace(GPU, power_limit_w=500)
    assert serves(H200, replace(H200, device=capped)) == ("tuned", "stale")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 500), st.sets(st.sampled_from(sorted(CHANGES))))
def test_another_number_of_multiprocessors_is_never_exact(count, changed):
    device = replace(GPU, sm_count=count)
    other = replace(H200, device=device, **{name: CHANGES[name] for name in changed})
    assert (tier(H200, other) == "exact") == (other == H200)
    if count != 132:
        assert tier(H200, other) == tier(other, H200) == "none"
        assert serves(H200, other)[0] == "heuristic"


@given(st.sets(st.sampled_from(sorted(CHANGES))))
def test_the_tier_is_that_of_the_worst_field(changed):
    other = replace(H200, **{name: CHANGES[name] for name in changed})
    worst = max((TIERS.index(RULES[name]) for name in changed), default=0)
    assert tier(H200, other) == TIERS[worst]
    assert differences(H200, other).keys() == changed


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """Promotes a layer of the model for an identity, and publishes."""
    monkeypatch.setenv("HUMMING_DB", str(tmp_path / "tuning.db"))

    def tuned(identity, n=128, k=256, m=1):
        layer = Problem("int4g128", n=n, k=k, m=m, activation_dtype="fp32", output_dtype="fp32")
        with open_store(str(tmp_path / "tuning.db")) as store:
            config = heuristic(layer, serving_device())
            winner = store.promote(
                identity, layer, config, us=7.0, heuristic_us=8.0, evidence={"serves": [0, 5]}
            )
            publish(store, tables_dir())
        return winner

    return tuned


def explained(call, model, *words):  # noqa: F811
    given = ("--model", model(), "--format", "int4g128", "--device", "cpu", "--m", "1", *words)
    code, out, err = call("explain", *given, "--json")
    assert code == 0, err
    return json.loads(out)


def row_of(report, winner):
    (row,) = (
        row
        for row in report["problems"]
        if (row["n"], row["k"]) == (winner.problem.n, winner.problem.k)
    )
    return row


def shape(call, model):  # noqa: F811
    row = explained(call, model)["problems"][0]
    return {"n": row["n"], "k": row["k"]}


def test_explain_says_which_record_serves_from_where_and_when(call, model, tuned):  # noqa: F811
    before = explained(call, model)
    assert before["table"] is None and {row["source"] for row in before["problems"]} == {
        "heuristic"
    }
    winner = tuned(here(serving_device()), **shape(call, model))
    row = row_of(explained(call, model), winner)
    record = row["record"]
    assert (row["source"], row["tier"], row["verify_first"]) == ("tuned", "exact", False)
    assert (record["record"], record["us"], record["differs"]) == (winner.id, 7.0, {})
    assert record["host"] == winner.evidence["host"]
    assert record["promoted_at"] == winner.promoted_at.isoformat()
    words = ("--model", model(), "--format", "int4g128", "--device", "cpu", "--m", "1")
    code, out, _ = call("explain", *words)
    assert code == 0 and f"from record {winner.id[:12]} of host {record['host']}" in out
    assert f"{winner.promoted_at.isoformat()[:19]} UTC" in out


def test_a_stale_record_is_named_with_its_differences_and_first_in_line(call, model, tuned):  # noqa: F811
    machine = here(serving_device())
    other = replace(machine, compiler_version="g++ 99")
    winner = tuned(other, **shape(call, model))
    fresh = tuned(machine, n=4096)
    row = row_of(explained(call, model), winner)
    assert (row["source"], row["tier"], row["verify_first"]) == ("tuned", "stale", True)
    differs = {"record": "g++ 99", "here": machine.compiler_version, "rule": "stale"}
    assert row["record"]["differs"] == {"compiler_version": differs}
    with open_store(str(tables_dir().with_suffix(""))) as store:
        line = stratified(served(store.winners(), machine), 2)
    assert [item[0].id for item in line] == [winner.id, fresh.id]


def test_a_record_of_other_kernels_is_passed_over_and_named(call, model, tuned):  # noqa: F811
    winner = tuned(replace(here(serving_device()), source_hash="cd" * 16), **shape(call, model))
    row = row_of(explained(call, model), winner)
    assert (row["source"], row["record"]) == ("heuristic", None)
    (other,) = row["others"]
    assert (other["record"], other["tier"]) == (winner.id, "none")
    assert other["differs"]["source_hash"]["rule"] == "none"
    words = ("--model", model(), "--format", "int4g128", "--device", "cpu", "--m", "1")
    assert f"passed over: record {winner.id[:12]}" in call("explain", *words)[1]


def test_a_data_folder_copied_to_another_machine_serves_by_the_right_tier(
    call,  # noqa: F811
    model,  # noqa: F811
    tuned,
    tmp_path,
    monkeypatch,
):
    winner = tuned(here(serving_device()), **shape(call, model))
    home = tmp_path / "another home"
    home.mkdir()
    for path in tmp_path.glob("tuning.db*"):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, home / path.name)
    monkeypatch.setenv("HUMMING_DB", str(home / "tuning.db"))
    assert load_table().id and load_table().path.is_relative_to(home)
    machine = here(serving_device())
    for changes, expected in (
        ({}, ("tuned", "exact")),
        ({"compiler_version": "clang 20"}, ("tuned", "stale")),
        ({"device": replace(machine.device, name="Other CPU")}, ("heuristic", None)),
        ({"device": replace(machine.device, threads=61)}, ("heuristic", None)),
    ):
        there = replace(machine, **changes)
        monkeypatch.setattr("tuner.evidence.explaining.here", lambda device, there=there: there)
        row = row_of(explained(call, model), winner)
        assert (row["source"], row["tier"]) == expected


def test_explain_without_a_model_or_with_a_bad_table_is_one_sentence(call, model, monkeypatch):  # noqa: F811
    expect_one_sentence(call("explain"), "--model")
    monkeypatch.setenv("HUMMING_TABLE", "@absent")
    words = ("--model", model(), "--format", "int4g128")
    expect_one_sentence(call("explain", *words), "a named table must exist", "@absent")


def test_a_server_that_is_away_is_a_line_of_ours(call, model, monkeypatch, tmp_path):  # noqa: F811
    url = "postgresql://someone:secret@127.0.0.1:1/fleet"
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    monkeypatch.setenv("HUMMING_DB", url)
    write_generation([], tables_dir(url))
    given = ("--model", model(), "--format", "int4g128", "--device", "cpu", "--m", "1", "--json")
    code, out, err = call("explain", *given)
    assert code == 0 and json.loads(out)["table"] is not None
    assert err.startswith("humming-tune: cannot reach ") and err.count("\n") == 1
    assert err.endswith("its last table serves\n") and "RuntimeWarning" not in err
