"""Which file system a path is on, and refusing SQLite on network disks. Nothing is opened here."""

from __future__ import annotations

import os
import re
from pathlib import Path

from humming.errors import StoreError

NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "orangefs",
    "pvfs",
    "panfs",
    "wekafs",
    "afs",
    "ncpfs",
    "9p",
    "virtiofs",
    *(
        f"fuse.{name}"
        for name in (
            *(
                "sshfs",
                "ceph",
                "gluster",
                "juice",
                "moosefs",
                "mfs",
                "lizardfs",
                "beegfs",
                "seaweed",
            ),
            *(
                "s3",
                "mount-s3",
                "mountpoint-s3",
                "goofys",
                "yas3fs",
                "gcsfuse",
                "blobfuse",
                "rclone",
            ),
            *("dav", "wdfs", "http", "curlftpfs", "smb", "nfs", "afp", "gvfs", "hdfs", "fuse_dfs"),
            *("alluxio", "objectivefs", "ossfs", "cosfs", "obsfs", "google-drive", "onedrive"),
        )
    ),
)
"""File systems, by how their names begin, on which SQLite's locks and shared memory do not hold."""

ADVICE = "name a file on a local disk with --db or HUMMING_DB, or a PostgreSQL server"

_MOUNTS = Path("/proc/self/mounts")
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2})")


def require_local(path: Path) -> None:
    """Raises StoreError where a SQLite file at `path` would lie on a network disk."""
    system = file_system(path)
    if system.lower().startswith(NETWORK):
        raise StoreError(
            f"{path} lies on a network disk ({system}), where SQLite loses data; {ADVICE}"
        )


def file_system(path: Path) -> str:
    """The type of the file system that `path` is or would be on; empty where nothing tells."""
    real = str(nearest(path).resolve())
    best, kind = "", ""
    try:
        lines = _MOUNTS.read_bytes().split(b"\n")
    except OSError:
        return ""
    for line in lines:
        fields = [os.fsdecode(_ESCAPE.sub(_byte, field)) for field in line.split(b" ")]
        if len(fields) < 3:
            continue
        where = fields[1].rstrip("/")
        inside = real == where or real.startswith(f"{where}/")
        if inside and len(where) >= len(best):
            # Some helpers of FUSE name themselves, or what they show, as the source alone.
            best, kind = where, f"fuse.{fields[0]}" if fields[2] == "fuse" else fields[2]
    return kind


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)])


def nearest(path: Path) -> Path:
    """`path`, or the closest of its parents that exists and can be looked at."""
    for place in (path, *path.parents):
        try:
            if place.exists():
                return place
        except OSError:
            continue
    return Path("/")
