"""Who tunes: this process alone, all devices of this host, or those of a Ray cluster. Words of the
command line in, a crew out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from humming.errors import UsageError
from tuner.fleet.cluster import RayCrew
from tuner.fleet.local import LocalCrew, devices_here
from tuner.fleet.work import Crew


@contextmanager
def crew_of(url: str, fleet: bool, ray: str | None, device: str) -> Iterator[Crew | None]:
    """The crew that --fleet or --ray ask for; None without either. Raises UsageError where they do
    not go together."""
    if fleet and ray is not None:
        raise UsageError("--fleet and --ray exclude each other; a Ray cluster has this host's GPUs")
    if (fleet or ray is not None) and device != "auto":
        raise UsageError(
            f"--{'fleet' if fleet else 'ray'} takes all devices, but got --device {device}; leave "
            "--device away"
        )
    if ray is not None:
        with RayCrew(ray, url) as crew:
            yield crew
    else:
        yield LocalCrew(url, devices_here()) if fleet else None
