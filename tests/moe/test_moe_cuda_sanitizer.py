"""compute-sanitizer finds no bad access and no race in grouped kernels. Needs a GPU and the tool
on PATH."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SAMPLE = Path(__file__).with_name("sanitize_moe_cuda.py")


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_blocks_of_experts_are_clean(tool):
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed")
    subprocess.run([sys.executable, str(SAMPLE)], check=True, timeout=300)  # compiles
    own = ["--report-api-errors", "no"]  # bindings ask a driver for functions that it may lack
    command = [
        sanitizer,
        "--tool",
        tool,
        *own,
        "--error-exitcode",
        "9",
        sys.executable,
        str(SAMPLE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards displayed" in done.stdout
