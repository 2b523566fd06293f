"""Where a layer's configs come from, and what happens when a table, compiler or kernel fails it."""

import copy
import pickle
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import humming
from humming.dispatch.tables import write_generation
from humming.errors import CompilerNotFoundError, LaunchError, TableError
from humming.jit.cache import compiled
from humming.reference import error_bound, matmul_float64


def layer_of(n, k=64, dtype=torch.float32):
    torch.manual_seed(0)
    return humming.HummingLinear.from_linear(nn.Linear(k, n, bias=False, dtype=dtype))


def assert_serves(layer, m=1):
    x = torch.randn(m, layer.in_features)
    q = layer.quantized()
    error = (layer(x).double() - matmul_float64(x, q)).abs()
    assert bool((error <= error_bound(x, q, x.dtype)).all())


def sources(layer):
    (plan,) = layer._plans.values()
    return {dispatch.source for dispatch in plan.dispatches}


def test_a_layer_says_where_its_configs_come_from(make_table):
    layer = layer_of(50)
    assert "not bound yet" in repr(layer)
    assert_serves(layer)
    assert "fp32: heuristic (no tuned table)" in repr(layer)
    table = make_table(50, 64, prefetch_bytes=1024)
    layer.prepare(table.path)
    assert f"table {table.id[:8]} for m in [0, 4) tuned exact, [4, 65) tuned exact" in repr(layer)
    for fact in ("in_features=64", "out_features=50", "int4g128", "cpu_n16k8", "device=cpu"):
        assert fact in repr(layer)
    assert_serves(layer)
    assert_serves(layer, 5)


def test_the_default_table_is_found_at_the_first_call(make_table, tmp_path, monkeypatch):
    make_table(51, 64)
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    layer = layer_of(51)
    assert_serves(layer)
    assert "tuned" in sources(layer)


def test_prepare_binds_a_whole_model_anew(make_table):
    model = nn.Sequential(layer_of(52), nn.ReLU(), layer_of(52))
    assert_serves(model[0])
    assert sources(model[0]) == {"heuristic"}
    assert humming.prepare(model, table=make_table(52, 64).path, m=1) is model
    assert "tuned" in sources(model[0])
    assert model[2]._plans == model[0]._plans  # layers that are alike share what is bound
    assert_serves(model[2])
    humming.prepare(model, m=1)
    assert sources(model[0]) == sources(model[2]) == {"heuristic"}


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"identity": {"source_hash": "0" * 32}}, "source_hash"),
        ({"problem": {"activation_dtype": "bf16"}}, "no entry for this layer"),
        ({"n": 99}, "no entry for this layer"),
    ],
)
def test_a_table_of_something_else_is_not_used(make_table, change, phrase):
    layer = layer_of(53)
    layer.prepare(make_table(**{"n": 53, "k": 64, **change}).path, m=1)
    assert sources(layer) == {"heuristic"}
    assert phrase in repr(layer)
    assert_serves(layer)


def test_records_of_another_number_of_threads_do_not_match(make_table):
    layer = layer_of(54)
    before = torch.get_num_threads()
    table = make_table(54, 64)
    layer.prepare(table.path, m=1)
    try:
        torch.set_num_threads(1 if before > 1 else 2)
        assert_serves(layer)
        plan = layer._plans[torch.float32, torch.get_num_threads()]
        if plan.threads != before:
            assert {dispatch.source for dispatch in plan.dispatches} == {"heuristic"}
    finally:
        torch.set_num_threads(before)


def test_a_table_of_another_layout_is_refused(make_table):
    with pytest.raises(TableError, match="layout"):
        layer_of(55).prepare(make_table(55, 64, problem={"layout": "other"}).path)


def test_a_damaged_named_table_is_refused_and_a_damaged_default_one_costs_a_warning(
    make_table, tmp_path, monkeypatch
):
    table = make_table(56, 64)
    table.path.write_text("{")
    with pytest.raises(TableError, match="cannot be used"):
        layer_of(56).prepare(table.path)
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    layer = layer_of(56)
    with pytest.warns(RuntimeWarning, match="the heuristic serves instead"):
        assert_serves(layer)
    assert sources(layer) == {"heuristic"}


def test_writing_a_new_generation_does_not_touch_a_bound_layer(make_table, tmp_path):
    layer = layer_of(57).prepare(make_table(57, 64).path, m=1)
    write_generation([], tmp_path / "tables")
    assert_serves(layer)
    assert "tuned" in sources(layer)


def test_a_config_that_does_not_compile_gives_way_with_one_warning(
    make_table, tmp_path, monkeypatch
):
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\n"
        "if [ -f kernel.cpp ] && grep -q 'prefetch_bytes = 7168' kernel.cpp; then\n"
        "  echo 'internal compiler error' >&2; exit 1\n"
        f'fi\nexec {shutil.which("c++") or shutil.which("g++")} "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("HUMMING_CXX", str(compiler))
    layer = layer_of(58)
    table = make_table(58, 64, prefetch_bytes=7168)
    with pytest.warns(RuntimeWarning, match="internal compiler error") as caught:
        layer.prepare(table.path)
        assert_serves(layer)
        assert_serves(layer, 16)
    refused = [str(w.message) for w in caught if w.category is RuntimeWarning]
    assert len(set(refused)) == len(refused) == 2  # one for each config
    assert sources(layer) == {"heuristic"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_serves(layer)


def test_a_launch_that_fails_gives_way_with_one_warning(make_table, monkeypatch):
    layer = layer_of(62).prepare(make_table(62, 64, ms=(1,), prefetch_bytes=6144).path, m=1)
    (plan,) = layer._plans.values()
    tuned = plan._bound.kernels[0]

    def fail(*_):
        raise LaunchError("status 7")

    monkeypatch.setattr(tuned, "launch", fail)
    with pytest.warns(RuntimeWarning, match="status 7"):
        assert_serves(layer)
    assert sources(layer) == {"heuristic"}
    assert_serves(layer)


def test_a_copy_keeps_its_table_and_forgets_one_that_is_gone(make_table):
    layer = layer_of(63).prepare(make_table(63, 64).path, m=1)
    copied, text = copy.deepcopy(layer), pickle.dumps(layer)
    assert_serves(copied)
    assert "tuned" in sources(copied)
    Path(layer.spec.table).unlink()
    moved = pickle.loads(text)
    assert_serves(moved)
    assert sources(moved) == {"heuristic"}


def test_without_a_compiler_a_cached_kernel_serves_and_nothing_else(tmp_path, monkeypatch):
    assert_serves(layer_of(59))
    monkeypatch.setenv("HUMMING_CXX", str(tmp_path / "absent"))
    assert_serves(layer_of(60))
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path / "cache"))
    with pytest.raises(CompilerNotFoundError, match="compiler"):
        assert_serves(layer_of(61))


@pytest.mark.parametrize(
    ("damage", "prefetch_bytes"), [("empty", 5120), ("elf", 5184), ("half", 5248), ("flip", 5312)]
)
def test_a_corrupt_kernel_cache_costs_a_compilation(
    make_table, tmp_path, monkeypatch, damage, prefetch_bytes
):
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path / "cache"))
    table = make_table(40, 64, ms=(1,), prefetch_bytes=prefetch_bytes)
    (entry,) = table.entries
    path = compiled(entry.intervals[0].config, entry.problem, entry.identity.device).path
    data = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "elf": data[:4],
            "half": data[: len(data) // 2],
            "flip": data[:900] + bytes([data[900] ^ 1]) + data[901:],
        }[damage]
    )
    layer = layer_of(40).prepare(table.path, m=1)
    assert_serves(layer)
    assert "tuned" in sources(layer)
