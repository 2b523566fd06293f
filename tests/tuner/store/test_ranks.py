"""All ranks of a job that name one generation compute alike, whatever others write meanwhile."""

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
from rank_process import promote, serve

from humming.settings import tables_dir
from tuner.store.open import open_store
from tuner.store.tables import fetch

ROOT = Path(__file__).parents[3]
PROCESS = Path(__file__).with_name("rank_process.py")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As the rank's processes have, whose records are of one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def named(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a generation that "prod" names, known to this host."""
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "host 1"))
    monkeypatch.setenv("HUMMING_DB", url)
    with open_store(url) as store:
        id = promote(store, 1)
        store.generations.name("prod", id)
        fetch(store, id, tables_dir(), "prod")
    return id


def test_what_names_a_generation_serves_it_alike_after_each_write(
    url: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, current = set(), set()
    with open_store(url) as store:
        for turn in (1, 2):
            promote(store, turn)
            for host, table in (("host 1", "@prod"), ("host 2", f"@{named}"), ("host 2", "")):
                if host == "host 2" and url.startswith("sqlite"):
                    host = "host 1"  # a SQLite file is one host's
                monkeypatch.setenv("HUMMING_DATA", str(tmp_path / host))
                monkeypatch.setenv("HUMMING_TABLE", table)
                (seen if table else current).add(serve())
    assert len(seen) == 1 and named[:8] in next(iter(seen))[1]
    assert len(current) == 2 and len({bits for bits, _ in current}) == 2


def _run(url: str, data: Path, what: str, table: str = "") -> Any:
    environment = {
        **os.environ,
        "HUMMING_DB": url,
        "HUMMING_DATA": str(data),
        "HUMMING_TABLE": table,
        "PYTHONPATH": str(ROOT),
    }
    words = [sys.executable, str(PROCESS), what, "60"]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_ranks_are_bit_identical_while_a_third_process_writes_for_a_minute(
    url: str, named: str, tmp_path: Path
) -> None:
    one, two = tmp_path / "host 1", tmp_path / "host 2"
    processes = [
        _run(url, one, "rank", "@prod"),
        _run(url, one if url.startswith("sqlite") else two, "rank", f"@{named}"),
        _run(url, one, "write"),
    ]
    first, second, wrote = (json.loads(process.communicate()[0]) for process in processes)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert wrote["generations"] >= 20 and min(first["calls"], second["calls"]) >= 20
    assert first["seen"] == second["seen"] and len(first["seen"]) == 1
    assert named[:8] in first["seen"][0][1]
    with open_store(url) as store:
        assert store.generations.named("prod") == named != store.generations.named("current")
