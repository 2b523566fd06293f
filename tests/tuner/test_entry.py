"""A package that does not import is one sentence, not a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def begun(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`humming-tune` with `tmp_path` in front of all packages."""
    code = "import sys; from tuner.entry import main; sys.argv[0] = 'humming-tune'; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],  # which looks for packages in its folder first
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )


def package(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "raise ImportError('libcudart.so.13: cannot open shared object file', name='torch')",
        "raise OSError('libtorch_cpu.so: undefined symbol')",
    ],
)
@pytest.mark.parametrize("words", [("doctor",), ("--version",)])
def test_a_torch_that_does_not_import(tmp_path, text, words):
    package(tmp_path, "torch", text)
    done = begun(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("humming-tune: ") and done.stderr.count("\n") == 1
    assert ".so" in done.stderr and "reinstall" in done.stderr


def test_files_that_another_distribution_has_overwritten(tmp_path):
    package(tmp_path, "humming", "")
    info = tmp_path / "humming_kernels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: humming-kernels\nVersion: 1.0\n")
    done = begun(tmp_path, "doctor")
    assert done.returncode == 2
    assert "pip uninstall humming-kernels" in done.stderr and done.stderr.count("\n") == 1


def test_ctrl_c_while_packages_are_imported(tmp_path):
    interrupted = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)"
    package(tmp_path, "torch", interrupted)
    done = begun(tmp_path, "doctor")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "humming-tune: ended by Ctrl-C\n"


def test_a_sound_installation_runs(tmp_path):
    done = begun(tmp_path, "--version")
    assert done.returncode == 0 and done.stdout.startswith("humming-tune ")
