"""The timing policy: a change of any figure is a new name, and its record stands beside samples."""

import json

import pytest

from humming.errors import UsageError
from humming.spec.canonical import content_hash
from humming.spec.identity import POLICIES
from tuner.measuring.policy import CPU, CUDA, policy_named, policy_of

KNOWN = {
    "cpu-cold-median-2": "089eeb8d69af6d04e63d39771bb85f4f",
    "cuda-cold-graph-median-2": "1a6656a5d214f07895ed496b92a8486a",
}
"""Name -> hash of all figures. A line is never changed: add one, with a new name."""


@pytest.mark.parametrize("policy", [CPU, CUDA])
def test_a_name_stands_for_its_figures(policy):
    assert KNOWN[policy.name] == content_hash(policy)


def test_every_kind_of_device_has_a_policy():
    for kind, name in POLICIES.items():
        assert policy_of(kind) is policy_named(name)
    assert CUDA.nodes is not None and CUDA.nodes >= 64


def test_a_policy_of_another_version_is_named():
    with pytest.raises(UsageError, match="cpu-cold-median-2"):
        policy_named("cpu-cold-median-1")


def test_its_record_is_plain():
    assert json.loads(json.dumps(CPU.record()))["name"] == CPU.name
