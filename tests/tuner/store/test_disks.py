"""A SQLite file on a network disk is refused before anything is made there; a server is the
advice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from humming.errors import StoreError
from tuner.store import disks
from tuner.store.migrate import upgrade
from tuner.store.open import open_store


def _mount(patch: pytest.MonkeyPatch, folder: Path, *lines: str) -> None:
    mounts = folder / "mounts"
    mounts.write_text("\n".join(["/dev/sda1 / ext4 rw 0 0", *lines]) + "\n")
    patch.setattr(disks, "_MOUNTS", mounts)


@pytest.mark.parametrize(
    "system", ["nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "fuse.sshfs", "fuse.s3fs", "afs"]
)
def test_a_network_disk_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    share = tmp_path / "a share"
    share.mkdir()
    _mount(monkeypatch, tmp_path, f"server:/x {str(share).replace(' ', chr(92) + '040')} {system}")
    url = f"sqlite:///{share}/below/x.db"
    for refused in (
        lambda: open_store(url),
        lambda: open_store(url, write=False),
        lambda: upgrade(url),
    ):
        with pytest.raises(StoreError, match=f"network disk \\({system}\\).*PostgreSQL server"):
            refused()
    assert list(share.iterdir()) == []


def test_a_link_to_a_network_disk_counts_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "home").symlink_to(share)
    _mount(monkeypatch, tmp_path, f"server:/x {share} nfs4 rw 0 0")
    with pytest.raises(StoreError, match="network disk"):
        open_store(str(tmp_path / "home" / "x.db"))


@pytest.mark.parametrize("system", ["ext4", "xfs", "overlay", "tmpfs", "fuse.mergerfs", "autofs"])
def test_local_disks_are_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    share = tmp_path / "share"
    share.mkdir()
    _mount(monkeypatch, tmp_path, f"disk {share} {system} rw 0 0", "server:/y /elsewhere nfs4")
    with open_store(str(share / "x.db")):
        assert disks.file_system(share) == system


def test_without_a_list_of_mounts_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "_MOUNTS", tmp_path / "none")
    with open_store(str(tmp_path / "x.db")):
        assert disks.file_system(tmp_path) == ""
