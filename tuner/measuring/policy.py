"""The timing policy as a value: how a device is warmed up, how samples are taken, and what proves.
It is stored with each set of samples; who follows it is samples.py, tuner/worker/bench.py and
tuner/promoting/verdict.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from humming.errors import UsageError
from humming.spec.canonical import plain
from humming.spec.identity import POLICIES


@dataclass(frozen=True)
class Policy:
    """One version of the rule by which a kind of device is timed. A change of any field is a new
    `name`: a test holds the two together.

    cold_caches   bytes that a walk over weight sets covers, in last-level caches: flushes that are
                  too small rank candidates wrongly
    most_sets     weight sets at the most
    nodes         calls in a CUDA graph, at the least (None on a CPU): a replay has a cost of its
                  own
    stretch_s     time of one sample on a CPU (None on a GPU): one call alone may meet another
                  process
    steady_share  the clock is steady when this many samples in a row lie so close together...
    steady_run    ...
    warm_up_s     or when warming up took so long
    samples       of one candidate, unless it is losing
    least_samples before it may be found losing
    places        places in memory of x, workspace and output that a walk goes through, few enough
                  to stay in the cache: on an H200 the ratio of two configs went from 0.96 to 1.06
                  with places, and stayed within 0.7 % at the same ones (h200_places.json)
    same_places   samples in a row at the same places (None: all). A round of a race has its own
    losing        even its least sample takes so many times the best one's median: two candidates
                  are not timed in the same seconds, so less may be the clock
    """

    name: str
    cold_caches: int
    most_sets: int
    nodes: int | None
    stretch_s: float | None
    steady_share: float
    steady_run: int
    warm_up_s: float
    samples: int
    least_samples: int
    losing: float
    places: int
    same_places: int | None

    def record(self) -> dict[str, Any]:
        """What stands beside a set of samples."""
        fields: dict[str, Any] = plain(self)
        return fields


CPU = Policy(
    name=POLICIES["cpu"],
    cold_caches=4,
    most_sets=128,
    nodes=None,
    stretch_s=0.012,
    steady_share=0.03,
    steady_run=3,
    warm_up_s=0.2,
    samples=9,
    least_samples=3,
    losing=1.15,
    places=1,
    same_places=None,
)

CUDA = Policy(
    name=POLICIES["cuda"],
    cold_caches=4,
    most_sets=128,
    nodes=64,
    stretch_s=None,
    steady_share=0.02,
    steady_run=3,
    warm_up_s=0.1,
    samples=9,
    least_samples=3,
    losing=1.15,
    places=4,
    same_places=3,
)

_BY_NAME = {policy.name: policy for policy in (CPU, CUDA)}


def policy_named(name: str) -> Policy:
    """The policy of an identity. Raises UsageError on another version's name."""
    found = _BY_NAME.get(name)
    if found is None:
        raise UsageError(
            f"a timing policy must be one of {', '.join(_BY_NAME)}, but got '{name}'; use the "
            "version of humming-tune that measured by it"
        )
    return found


def policy_of(kind: str) -> Policy:
    """The policy by which devices of `kind` are timed now."""
    return policy_named(POLICIES[kind])
