"""Where the command `humming-tune` begins: what cannot even be imported is told in one sentence.
The command line itself is cli.py; nothing of humming is imported here at once."""

from __future__ import annotations

import sys
from importlib import metadata

_CLAIMANT = "humming-kernels"
"""The other distribution that imports as `humming`; see humming/version.py."""


def main() -> None:
    """Runs the command line; exit code 2 with one sentence where its packages do not import, and
    130 where Ctrl-C ends it before the command, which says more, could."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.stderr.write("humming-tune: ended by Ctrl-C\n")
        raise SystemExit(130) from None


def _run() -> None:
    try:
        from tuner.cli import main as run
    except (ImportError, OSError) as error:  # OSError: a shared library of torch
        sys.stderr.write(f"humming-tune: {_why(error)}\n")
        raise SystemExit(2) from None
    run()


def _why(error: Exception) -> str:
    said = " ".join(str(error).split())[:300]
    if _installed(_CLAIMANT):
        return (
            f"humming-tune must be the only package that imports as 'humming', but {_CLAIMANT} is "
            f"installed too ({said}); pip uninstall {_CLAIMANT}, then reinstall humming-tune"
        )
    name = getattr(error, "name", None) or "a package"
    return (
        f"{name.partition('.')[0]} cannot be imported ({said}); reinstall it with pip install "
        "--force-reinstall, or make a new environment"
    )


def _installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
