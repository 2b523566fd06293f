"""Checks of storage and threads, each on a machine that has the fault."""

import errno
import sqlite3
from dataclasses import replace

import pytest

from humming.dispatch.heuristics import heuristic
from humming.dispatch.tables import Interval, TableEntry, write_generation
from humming.jit.identity import here as identity_here
from humming.jit.identity import serving_device
from humming.settings import tables_dir
from humming.spec.config import BlasConfig, CpuConfig
from humming.spec.problem import Problem
from humming.spec.sources import WHOLE, parts_of, text_of
from tuner.doctor import machine, storage
from tuner.doctor.finding import Surroundings
from tuner.store.migrate import upgrade


@pytest.fixture
def here(tmp_path, monkeypatch) -> Surroundings:
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("HUMMING_DB", raising=False)
    return Surroundings(serving_device(), str(tmp_path / "t.db"))


def refuse(monkeypatch, number):
    def no_file(**_):
        raise OSError(number, "no")

    monkeypatch.setattr(storage.tempfile, "TemporaryFile", no_file)


def test_nothing_is_made_by_looking(here, tmp_path):
    for check in (storage.cache, storage.disk, storage.database, storage.table):
        check(here)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_is_full_or_cannot_be_written(here, monkeypatch):
    assert storage.cache(here).status == "ok"
    refuse(monkeypatch, errno.ENOSPC)
    assert storage.cache(here).status == "fail" and "full" in storage.cache(here).found
    refuse(monkeypatch, errno.EROFS)
    finding = storage.cache(here)
    assert finding.status == "warn" and "HUMMING_CACHE" in finding.fix


def test_a_file_where_the_cache_should_be(here, tmp_path):
    (tmp_path / "cache").write_text("")
    assert storage.cache(here).status == "warn"


def test_a_cache_that_everyone_may_write(here, tmp_path):
    folder = tmp_path / "cache" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert storage.cache(here).fix == f"chmod go-w '{folder}'"


def test_little_space(here, monkeypatch):
    for free, status in ((1 << 40, "ok"), (100 << 20, "warn"), (1 << 20, "fail")):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr(storage.shutil, "disk_usage", lambda _, usage=usage: usage)
        assert storage.disk(here).status == status


def test_databases(here, tmp_path, monkeypatch):
    assert "not there yet" in storage.database(here).found
    upgrade(f"sqlite:///{tmp_path}/t.db")
    assert storage.database(here).status == "ok"
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    newer = storage.database(here)
    assert newer.status == "fail" and newer.fix == "upgrade the package"
    refuse(monkeypatch, errno.EROFS)
    assert storage.database(Surroundings(here.device, str(tmp_path / "u.db"))).status == "fail"


def test_an_older_revision_names_the_command(here, tmp_path, monkeypatch):
    upgrade(f"sqlite:///{tmp_path}/t.db")
    monkeypatch.setattr(storage, "REVISION", "9000")
    finding = storage.database(here)
    assert finding.status == "warn"
    assert finding.fix == f"humming-tune db upgrade --db '{tmp_path}/t.db'"


def test_a_server_that_is_away_shows_no_password(here):
    url = "postgresql://someone:s3cret@127.0.0.1:9/tuning"
    finding = storage.database(Surroundings(here.device, url))
    assert finding.status == "fail" and "s3cret" not in finding.found + finding.fix


def test_a_network_disk(here, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr("tuner.store.disks._MOUNTS", mounts)
    finding = storage.database(here)
    assert finding.status == "fail" and "nfs4" in finding.found and "--db" in finding.fix


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({}, "ok", "1 exact"),
        ({"product_version": "0.0.1"}, "ok", "1 compatible"),
        ({"driver": "1.2"}, "warn", "driver 1.2 there"),
        ({"source_hash": "0" * 32}, "warn", "the heuristic serves"),
    ],
)
def test_the_tier_of_the_table(here, change, status, says):
    identity = identity_here(here.device)
    layer = Problem("int4g128", n=64, k=128, m=0)
    config = heuristic(layer.at(1), here.device)
    entry = TableEntry(
        replace(identity, **change), layer, (Interval(0, 5, 1, config, 1.0, 1.0, "r"),)
    )
    assert storage.table(here).fix == "humming-tune --model config.json"
    write_generation([entry], tables_dir(here.database))
    finding = storage.table(here)
    assert finding.status == status and says in finding.found


def test_a_layer_of_which_a_part_holds_counts_once(here):
    machine = identity_here(here.device)
    parts = {**parts_of(machine.source_hash), "blas": "0" * 12, WHOLE: "0" * 32}
    layer = Problem("int4g128", n=64, k=128, m=0)
    config = CpuConfig("stream", "generic", 1, 32, 128, 2, 1024, 1)
    served = (Interval(0, 5, 1, config, 1.0, 1.0, "r"),)
    served += (Interval(5, 99, 9, BlasConfig("generic", 64), 1.0, 1.0, "s"),)
    entry = TableEntry(replace(machine, source_hash=text_of(parts)), layer, served)
    write_generation([entry], tables_dir(here.database))
    finding = storage.table(here)
    assert finding.status == "ok" and finding.found.endswith("layers 1 exact")


def test_the_table_that_the_variable_names(here, monkeypatch):
    made = write_generation([], tables_dir(here.database), name="prod")
    monkeypatch.setenv("HUMMING_DB", f"sqlite:///{here.database}")
    monkeypatch.setenv("HUMMING_TABLE", "@prod")
    finding = storage.table(replace(here, database=None))
    assert finding.status == "warn" and "no tuned table yet" in finding.found
    monkeypatch.setenv("HUMMING_TABLE", "@absent")
    assert storage.table(replace(here, database=None)).status == "fail"
    assert made.path.is_file()


def test_threads_against_the_container(here, tmp_path, monkeypatch):
    monkeypatch.setattr(machine.torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(machine, "available_threads", lambda: 2)
    assert machine.threads(here).fix == "export OMP_NUM_THREADS=2"
    monkeypatch.setattr(machine, "available_threads", lambda: 8)
    monkeypatch.setattr(machine, "cpu_quota", lambda: 1.5)
    assert machine.threads(here).fix == "export OMP_NUM_THREADS=1"
    monkeypatch.setattr(machine, "cpu_quota", lambda: None)
    assert machine.threads(here).status == "ok"


def test_quotas_of_both_kinds_of_control_groups(tmp_path):
    assert machine.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert machine.cpu_quota(tmp_path) == 2.5
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert machine.cpu_quota(tmp_path) is None
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("150000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.cpu_quota(tmp_path) == 1.5


def test_a_cpu_without_vectors_and_a_busy_machine(here, monkeypatch):
    assert machine.code_paths(Surroundings(replace(here.device, isa=()))).status == "warn"
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (50.0, 0.0, 0.0))
    assert machine.load(here).status == "warn"
