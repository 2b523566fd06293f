"""Devices of this machine, and what is read from files that other machines have."""

from __future__ import annotations

import os
import platform

import pytest

from humming.errors import UsageError
from humming.jit import detect
from humming.spec.device import CODE_PATH_FLAGS


def test_this_cpu():
    device = detect.cpu_device()
    assert (device.kind, device.arch) == ("cpu", platform.machine())
    assert device.name.strip() == device.name != ""
    assert device.threads == len(os.sched_getaffinity(0))
    assert device.cache_bytes >= 1 << 20
    assert list(device.isa) == sorted(set(device.isa))
    assert set(device.isa) <= {f for flags in CODE_PATH_FLAGS.values() for f in flags}
    assert device.supports("generic")
    assert detect.cpu_device().id == device.id
    assert detect.cpu_device(threads=3).threads == 3


def test_threads_must_be_positive():
    with pytest.raises(UsageError, match="threads >= 1"):
        detect.cpu_device(threads=0)


def test_an_arm_machine_without_cache_files(monkeypatch, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd40\n")
    monkeypatch.setattr(detect, "_CPUINFO", cpuinfo)
    monkeypatch.setattr(detect, "_CACHES", tmp_path / "none")
    detect.cpu_flags.cache_clear()
    try:
        device = detect.cpu_device()
    finally:
        monkeypatch.undo()
        detect.cpu_flags.cache_clear()
    assert device.name == "0x41 0xd40"
    assert device.isa == ()
    assert device.l2_bytes_per_core is None
    assert device.cache_bytes > 0


def test_cache_sizes_are_read_by_level(monkeypatch, tmp_path):
    rows = [
        ("1", "Data", "32K"),
        ("1", "Instruction", "64K"),
        ("2", "Unified", "1M"),
        ("3", "U", ""),
    ]
    for index, (level, kind, size) in enumerate(rows):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    monkeypatch.setattr(detect, "_CACHES", tmp_path)
    device = detect.cpu_device()
    assert device.l2_bytes_per_core == 1 << 20
    assert device.cache_bytes == 1 << 20


def test_a_device_is_found_by_name():
    assert detect.find_device("cpu").kind == "cpu"
    assert detect.find_device("auto").id == detect.find_device("cpu").id


@pytest.mark.parametrize("spec", ["gpu", "", "cuda:x", "cpu:1", "cuda:-1", "CPU"])
def test_another_spec_is_refused(spec):
    with pytest.raises(UsageError, match=r"device must be auto, cpu or cuda:<index>"):
        detect.find_device(spec)


def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match=r"'cuda:999' must exist"):
        detect.find_device("cuda:999")


@pytest.mark.gpu
def test_gpus_are_described():
    for device in detect.cuda_devices():
        assert device.kind == "cuda"
        assert device.uuid.startswith("GPU-")
        assert device.sm_count > 0
