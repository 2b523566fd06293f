"""Which file system a path is on, and refusing SQLite on network disks. Nothing is opened here."""

from __future__ import annotations

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
    *(
        f"fuse.{name}"
        for name in ("sshfs", "ceph", "gluster", "s3fs", "gcsfuse", "rclone", "juice")
    ),
)
"""File systems, by how their names begin, on which SQLite's locks and shared memory do not hold."""

ADVICE = "name a file on a local disk with --db or HUMMING_DB, or a PostgreSQL server"

_MOUNTS = Path("/proc/self/mounts")


def require_local(path: Path) -> None:
    """Raises StoreError where a SQLite file at `path` would lie on a network disk."""
    system = file_system(path)
    if system.startswith(NETWORK):
        raise StoreError(
            f"{path} lies on a network disk ({system}), where SQLite loses data; {ADVICE}"
        )


def file_system(path: Path) -> str:
    """The type of the file system that `path` is or would be on; empty where nothing tells."""
    real = str(nearest(path).resolve())
    best, kind = "", ""
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        where = fields[1].encode().decode("unicode_escape", "replace").rstrip("/")
        inside = real == where or real.startswith(f"{where}/")
        if inside and len(where) >= len(best):
            best, kind = where, fields[2]
    return kind


def nearest(path: Path) -> Path:
    """`path`, or the closest of its parents that exists and can be looked at."""
    for place in (path, *path.parents):
        try:
            if place.exists():
                return place
        except OSError:
            continue
    return Path("/")
