"""Where figures come from: device, software, time and load. Nothing is measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from humming.jit.identity import here
from humming.spec.canonical import plain
from humming.spec.device import Device

ROOT = Path(__file__).parents[1]


def provenance(device: Device) -> dict[str, Any]:
    """Plain JSON that says on what, with what and when; `git_commit` is None outside a clone."""
    identity = here(device)
    facts: dict[str, Any] = plain(identity)
    del facts["device"]
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": plain(device),
        "identity": {"id": identity.id, **facts},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load_average": list(os.getloadavg()),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
