"""Keeps every test run out of the user's folders: cache, data and database are temporary. Lets none
fail for the time that a busy machine takes."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory):
    """One kernel cache for the whole session (compiling is slow), also where several processes run
    it; a data folder for each process."""
    root = tmp_path_factory.mktemp("humming")
    of_all = root
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_all = tmp_path_factory.getbasetemp().parent  # each process has a folder below the run's
    shared = Path(os.environ.get("HUMMING_TEST_CACHE", of_all / "cache"))
    os.environ.update(HUMMING_CACHE=str(shared), HUMMING_DATA=str(root / "data"))
    os.environ.pop("HUMMING_DB", None)
    os.environ.pop("HUMMING_TABLE", None)
