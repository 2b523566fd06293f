"""The ledger: calls and misses counted in memory for each problem, written now and then and at
exit, never by a call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import humming
from humming import ledger
from humming.jit.identity import here
from humming.spec.problem import Problem

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A ledger without counts or a thread, writing to a folder of its own."""
    made = ledger._Ledger()
    made.started = True
    monkeypatch.setattr(ledger, "_LEDGER", made)
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    monkeypatch.delenv("HUMMING_LEDGER", raising=False)
    yield


def _layer() -> humming.HummingLinear:
    return humming.HummingLinear.from_linear(torch.nn.Linear(64, 32, bias=False), "int8")


def _written() -> dict[str, Any]:
    path = ledger.flush()
    assert path is not None and path.parent == ledger.folder()
    return dict(json.loads(path.read_text()))


def _counts(content: dict[str, Any]) -> dict[int, tuple[int, int]]:
    return {row["problem"]["m"]: (row["calls"], row["misses"]) for row in content["calls"]}


def test_each_call_counts_once_cold_or_warm_whatever_the_layer(fresh: None) -> None:
    one, other = _layer(), _layer()
    with torch.inference_mode():
        for _ in range(7):
            one(torch.randn(1, 64))
        for _ in range(3):
            other(torch.randn(1, 64))
        for _ in range(5):
            one(torch.randn(2, 3, 64))
            humming.gemm(torch.randn(9, 64), humming.quantize(torch.randn(32, 64), "int8"))
    content = _written()
    assert _counts(content) == {1: (10, 10), 6: (5, 5), 9: (5, 5)}
    assert {row["identity"] for row in content["calls"]} == {here().id}
    row = content["calls"][0]["problem"]
    assert Problem(**row).n == 32 and row["format"] == "int8"


def test_experts_are_counted_by_tokens(fresh: None) -> None:
    weights = [humming.quantize(torch.randn(32, 64), "int8") for _ in range(4)]
    ids = torch.tensor([[0, 1], [2, 3], [1, 1]])
    with torch.inference_mode():
        for _ in range(3):
            humming.moe_gemm(torch.randn(3, 64), weights, ids=ids)
    (row,) = _written()["calls"]
    assert (row["problem"]["op"], row["problem"]["m"], row["problem"]["experts"]) == ("moe", 3, 4)
    assert (row["calls"], row["misses"]) == (3, 3)


def test_a_flush_without_news_writes_nothing_and_one_with_news_all(fresh: None) -> None:
    counted = ledger.tally(here(), Problem("int8", n=32, k=64, m=1), missed=False)
    assert ledger.flush() is None and not ledger.folder().exists()
    counted[0] += 4
    assert _counts(_written()) == {1: (4, 0)}
    assert ledger.flush() is None
    ledger.tally(here(), Problem("int8", n=32, k=64, m=1), missed=True)[0] += 2
    assert _counts(_written()) == {1: (6, 2)}
    assert len(list(ledger.folder().iterdir())) == 1


def test_a_call_that_counts_by_itself_is_asked_and_at_its_end_once_more(fresh: None) -> None:
    class Native:
        pass

    native, count = Native(), [3]
    problem = Problem("int8", n=32, k=64, m=1)
    ledger.watch(here(), problem, False, native, lambda: count[0])
    assert _counts(_written()) == {1: (3, 0)}
    count[0] = 8
    del native
    count[0] = 9  # nobody is left to count it
    assert _counts(_written()) == {1: (8, 0)}


def test_it_can_be_turned_off(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUMMING_LEDGER", "0")
    with torch.inference_mode():
        _layer()(torch.randn(1, 64))
    ledger.watch(here(), Problem("int8", n=32, k=64, m=1), False, object(), lambda: 1)
    assert ledger.flush() is None and ledger._LEDGER.counts == {}


def test_a_folder_that_cannot_be_written_is_no_matter(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "file"))
    ledger.tally(here(), Problem("int8", n=32, k=64, m=1), missed=True)[0] += 1
    assert ledger.flush() is None


def test_a_forked_child_counts_its_own_calls(fresh: None) -> None:
    counted = ledger.tally(here(), Problem("int8", n=32, k=64, m=1), missed=True)
    counted[0] += 5
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ledger._LEDGER.begin_anew()
            counted[0] += 2
            status = 0 if _counts(_written()) == {1: (2, 2)} else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert _counts(_written()) == {1: (5, 5)}
    assert len(list(ledger.folder().iterdir())) == 2


def test_files_that_nobody_takes_in_do_not_pile_up(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_FILES", 3)
    ledger.folder().mkdir(parents=True)
    for index in range(5):
        (ledger.folder() / f"{index}.json").write_text("{}")
        os.utime(ledger.folder() / f"{index}.json", (index, index))
    ledger.tally(here(), Problem("int8", n=32, k=64, m=1), missed=True)[0] += 1
    left = {path.name for path in (_written() and ledger.folder()).iterdir()}
    assert len(left) == 3 and {"3.json", "4.json"} < left


@pytest.mark.slow
def test_a_serving_process_leaves_its_counts_behind(tmp_path: Path) -> None:
    code = (
        "import humming, torch\n"
        "layer = humming.HummingLinear.from_linear(torch.nn.Linear(64, 32), 'int8')\n"
        "with torch.inference_mode():\n"
        "    for _ in range(4): layer(torch.randn(2, 64))\n"
    )
    environment = {**os.environ, "HUMMING_DATA": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("HUMMING_LEDGER", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    (file,) = (tmp_path / "ledger").iterdir()
    assert _counts(json.loads(file.read_text())) == {2: (4, 4)}


def test_what_serves_nobody_is_not_counted(fresh: None) -> None:
    weight = humming.quantize(torch.randn(40, 64), "int8")
    with torch.inference_mode():
        with ledger.uncounted():
            for _ in range(2):
                humming.gemm(torch.randn(11, 64), weight)
        assert ledger.flush() is None
        humming.gemm(torch.randn(12, 64), weight)
    assert _counts(_written()) == {12: (1, 1)}
