"""A SQLite file on a network disk is refused before anything is made there; a server is the
advice.
"""

from __future__ import annotations

import os
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
    "system",
    [
        *("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "afs", "9p", "virtiofs"),
        *(
            "fuse.sshfs",
            "fuse.s3fs",
            "fuse.rclone",
            "fuse.davfs",
            "fuse.mount-s3",
            "fuse.blobfuse2",
        ),
    ],
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


@pytest.mark.parametrize("source", ["mountpoint-s3", "blobfuse2", "https://dav.example"])
def test_a_helper_that_names_itself_as_the_source_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    share = tmp_path / "share"
    share.mkdir()
    _mount(monkeypatch, tmp_path, f"{source} {share} fuse rw 0 0")
    with pytest.raises(StoreError, match="network disk"):
        open_store(str(share / "x.db"))


@pytest.mark.parametrize("name", [b"d\xc3\xa4ten", b"\xff", b"a\\b\tc", b"\xe2\x80\xa8x"])
def test_a_mount_point_of_any_bytes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    share = tmp_path / os.fsdecode(name)
    share.mkdir()
    told = os.fsencode(share).replace(b"\\", rb"\134").replace(b"\t", rb"\011")
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"/dev/sda1 / ext4 rw 0 0\nserver:/x " + told + b" nfs4 rw 0 0\n")
    monkeypatch.setattr(disks, "_MOUNTS", mounts)
    assert disks.file_system(share / "x.db") == "nfs4"


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
