"""Keeps every test run out of the user's folders: cache, data and database are temporary."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory):
    """One kernel cache for the whole session (compiling is slow), one data folder."""
    root = tmp_path_factory.mktemp("humming")
    shared = Path(os.environ.get("HUMMING_TEST_CACHE", root / "cache"))
    os.environ.update(HUMMING_CACHE=str(shared), HUMMING_DATA=str(root / "data"))
    os.environ.pop("HUMMING_DB", None)
    os.environ.pop("HUMMING_TABLE", None)
