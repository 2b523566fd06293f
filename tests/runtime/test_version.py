"""The version is pyproject's, and another package of our import name stops the first op."""

import re
from pathlib import Path

import pytest

import humming
from humming.errors import UsageError
from humming.version import require_alone


def test_the_version_is_the_one_that_is_released():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    match = re.search(r'^version = "(.+)"', text, re.MULTILINE)
    assert match
    assert match[1] == humming.__version__


def test_another_package_of_our_import_name_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "humming_kernels-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: humming-kernels\nVersion: 1.0\n")
    require_alone.cache_clear()
    require_alone()
    monkeypatch.syspath_prepend(str(tmp_path))
    require_alone.cache_clear()
    with pytest.raises(UsageError, match="pip uninstall humming-kernels"):
        require_alone()
    monkeypatch.undo()
    require_alone.cache_clear()
    require_alone()


def test_an_unknown_name_is_an_attribute_error():
    assert "gemm" in dir(humming)
    with pytest.raises(AttributeError, match="no attribute 'gem'"):
        _ = humming.gem
