"""compute-sanitizer finds no bad access and no race in a sample of each family. Needs a GPU, and
the tool on PATH."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SAMPLE = Path(__file__).with_name("sanitize_cuda.py")


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_a_sample_of_each_family_is_clean(tool):
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed")
    sample = [sys.executable, str(SAMPLE)]
    subprocess.run([*sample, "--compile"], check=True, timeout=300)
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", *sample]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards displayed" in done.stdout
