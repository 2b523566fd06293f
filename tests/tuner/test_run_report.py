"""What a run says at its end: numbers of things, and times that were taken on a busy machine."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from humming.spec.naming import counted
from tuner.report import print_table


def report(**changes: Any) -> dict[str, Any]:
    ms = {"tuned": None, "heuristic": None, "torch": None}
    made = {"model": "tiny", "device": "cpu", "measured": 1, "settled": 0, "problems": []}
    return {**made, "skipped": [], "ms_per_token": ms, "warnings": [], **changes}


def printed(capsys: pytest.CaptureFixture[str], told: dict[str, Any]) -> str:
    print_table(told, Console(width=200))
    return capsys.readouterr().out


def test_one_is_told_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, report(settled=-1))
    assert "measured 1 candidate\n" in text and "1 problem not reached" in text
    text = printed(capsys, report(measured=2, settled=-2))
    assert "measured 2 candidates\n" in text and "2 problems not reached" in text


@pytest.mark.parametrize(("count", "says"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries")])
def test_numbers_of_things(count: int, says: str) -> None:
    assert counted(count, "entry", "entries") == says
    assert counted(count, "layer") == f"{count} layer{'s' if count != 1 else ''}"
