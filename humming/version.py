"""The product's version, and the check that our import name is ours alone. Nothing else."""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata

from humming.errors import UsageError

__version__ = "0.1.0"

_CLAIMANT = "humming-kernels"


@lru_cache(maxsize=1)
def require_alone() -> None:
    """Raises UsageError where another distribution that imports as `humming` is installed too.

    Two packages that overwrite each other's files would fail later and stranger.
    """
    try:
        metadata.distribution(_CLAIMANT)
    except metadata.PackageNotFoundError:
        return
    raise UsageError(
        f"humming-tune must be the only package that imports as 'humming', but {_CLAIMANT} is "
        f"installed too; pip uninstall {_CLAIMANT}, then reinstall humming-tune"
    )
