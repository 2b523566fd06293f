"""The NVIDIA driver's version as its kernel module tells it."""

import pytest

from humming.jit import identity

CLOSED = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
ARM = """NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  575.57.08  Release Build
"""


@pytest.mark.parametrize(
    ("text", "version"), [(CLOSED, "550.54.15"), (OPEN, "580.159.04"), (ARM, "575.57.08")]
)
def test_the_version_is_read_and_not_the_architecture(text, version, tmp_path, monkeypatch):
    file = tmp_path / "version"
    file.write_text(text)
    monkeypatch.setattr(identity, "_DRIVER_FILE", file)
    assert identity.cuda_driver() == version
