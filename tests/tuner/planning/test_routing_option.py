"""--routing: a name, or a file that `humming.record_routing` wrote; all else is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from humming.errors import LegalityError, UsageError
from tuner.planning.tasks import parse_routing


def test_a_name_or_what_a_file_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "routing.json"
    file.write_text(json.dumps({"routing": "zipf1.2", "counts": {}}))
    assert parse_routing(str(file)) == "zipf1.2"
    (tmp_path / "uniform").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_routing("uniform") == "uniform"  # a name, whatever stands here


@pytest.mark.parametrize("content", ["[" * 100_000, "{}", "[]", "{", "\x00", '{"a": ' * 100_000])
def test_a_file_that_is_no_record(tmp_path: Path, content: str) -> None:
    file = tmp_path / "routing.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"must name a file of humming[.]record_routing"):
        parse_routing(str(file))


@pytest.mark.parametrize("name", ["folder", "folder.json"])
def test_a_folder_is_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=r"is none \(it is a folder\)"):
        parse_routing(str(tmp_path / name))


def test_a_name_of_nothing() -> None:
    with pytest.raises(LegalityError, match="routing must be 'uniform'"):
        parse_routing("skewed")
