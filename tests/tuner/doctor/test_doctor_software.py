"""Checks of software, each on a machine that has the fault."""

from importlib import metadata

import pytest

from humming.errors import CompileError
from humming.jit.identity import serving_device
from tuner.doctor import software
from tuner.doctor.finding import Surroundings


@pytest.fixture
def here() -> Surroundings:
    return Surroundings(serving_device())


def card(folder, vendor="0x10de", kind="0x030200"):
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def driver_is(monkeypatch, version):
    monkeypatch.setattr(software, "cuda_driver", lambda: version)


def test_another_package_of_our_names(here, monkeypatch):
    monkeypatch.setattr(
        metadata, "packages_distributions", lambda: {"humming": ["humming-tune", "humming-kernels"]}
    )
    finding = software.import_names(here)
    assert finding.status == "fail" and "humming-kernels" in finding.found
    assert finding.fix.startswith("pip uninstall -y humming-kernels")


def test_the_command_runs_where_names_clash(monkeypatch, capsys):
    from tuner import cli

    def refuse():
        raise AssertionError("doctor must run, and say so itself")

    monkeypatch.setattr(cli, "require_alone", refuse)
    monkeypatch.setattr("sys.argv", ["humming-tune", "doctor", "--help"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0


def test_a_card_without_a_driver(here, monkeypatch, tmp_path):
    driver_is(monkeypatch, "")
    monkeypatch.setattr(software, "_PCI", tmp_path)
    assert software.driver(here).status == "ok"
    card(tmp_path / "0000:01:00.0")
    card(tmp_path / "0000:02:00.0", vendor="0x8086")
    card(tmp_path / "0000:03:00.0", kind="0x040300")  # the audio function of a card
    finding = software.driver(here)
    assert finding.status == "fail" and finding.found.startswith("1 NVIDIA card")


@pytest.mark.parametrize(
    ("version", "status", "newest"),
    [
        ("580.65.06", "ok", "CUDA 13"),
        ("535.183.01", "ok", "CUDA 12"),
        ("CUDA 13.0", "ok", "CUDA 13"),
        ("390.157", "fail", "525"),
    ],
)
def test_what_a_driver_runs(here, monkeypatch, version, status, newest):
    driver_is(monkeypatch, version)
    finding = software.driver(here)
    assert finding.status == status
    assert newest in finding.found + finding.fix


def test_a_driver_whose_gpus_cuda_does_not_see(here, monkeypatch):
    driver_is(monkeypatch, "580.65.06")
    monkeypatch.setattr(software, "cuda_devices", list)
    assert software.gpus(here).status == "fail"
    monkeypatch.setattr(software.importlib.util, "find_spec", lambda name: None)
    assert software.gpus(here).fix == "pip install 'humming-tune[cu13]'"
    driver_is(monkeypatch, "535.1")
    assert software.gpus(here).fix == "pip install 'humming-tune[cu12]'"


@pytest.mark.parametrize(
    ("driver", "build", "available", "status", "says"),
    [
        ("", None, False, "ok", "CPU build"),
        ("", "13.0", False, "ok", "unused"),
        ("580.65.06", None, False, "fail", "CPU build"),
        ("535.183", "13.0", False, "fail", "runs CUDA 12"),
        ("580.65.06", "13.0", False, "fail", "not available"),
        ("580.65.06", "12.8", True, "ok", "CUDA 12.8"),
    ],
)
def test_torch_against_the_driver(here, monkeypatch, driver, build, available, status, says):
    driver_is(monkeypatch, driver)
    monkeypatch.setattr(software.torch.version, "cuda", build)
    monkeypatch.setattr(software.torch.cuda, "is_available", lambda: available)
    finding = software.torch_build(here)
    assert finding.status == status and says in finding.found


def test_an_old_torch(here, monkeypatch):
    monkeypatch.setattr(software.torch, "__version__", "2.6.1+cu124")
    assert software.torch_build(here).fix == "pip install 'torch>=2.7'"


def test_no_compiler_or_one_that_compiles_nothing(here, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("HUMMING_CXX", "absent++")
    finding = software.cxx_compiler(here)
    assert finding.status == "fail" and "absent++" in finding.found

    def broken(*_):
        raise CompileError("c++ failed with exit code 1:\nno <cstdint>")

    monkeypatch.undo()
    monkeypatch.setattr(software, "compile_source", broken)
    assert "no <cstdint>" in software.cxx_compiler(here).found


def test_an_nvrtc_that_is_newer_than_the_driver(here, monkeypatch):
    pytest.importorskip("cuda.bindings")
    driver_is(monkeypatch, "")
    assert software.nvrtc(here).status == "ok"
    if software.find_nvrtc().version.startswith("13"):
        driver_is(monkeypatch, "535.183.01")
        assert "runs CUDA 12" in software.nvrtc(here).found


def test_wrong_numbers_are_found(here, monkeypatch):
    assert software.kernel(here).status == "ok"
    monkeypatch.setattr(software, "gemm", lambda x, w: x.new_full((3, 48), float("nan")))
    assert "wrong numbers" in software.kernel(here).found
