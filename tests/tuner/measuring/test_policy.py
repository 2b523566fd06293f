"""The timing policy: a change of any figure is a new name, and its record stands beside samples."""

import json

import pytest

from humming.errors import UsageError
from humming.spec.canonical import content_hash
from humming.spec.identity import POLICIES
from tuner.measuring.policy import CPU, CUDA, policy_named, policy_of
from tuner.measuring.samples import Dealt

KNOWN = {
    "cpu-cold-median-2": "089eeb8d69af6d04e63d39771bb85f4f",
    "cuda-cold-graph-median-2": "1a6656a5d214f07895ed496b92a8486a",
    "cpu-cold-median-3": "76fd825fe13e1a23fd4e5abc2d90a72a",
    "cuda-cold-graph-median-3": "616d3b44946b8abe4ba23534c21ca818",
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
    with pytest.raises(UsageError, match="cpu-cold-median-3"):
        policy_named("cpu-cold-median-1")


def test_its_record_is_plain():
    assert json.loads(json.dumps(CPU.record()))["name"] == CPU.name


def test_samples_of_a_deal_are_as_many_as_the_policy_says():
    made: list[int] = []

    def deal():
        made.append(len(made))
        return lambda: float(made[-1])

    sample = Dealt(deal, 3)
    assert [sample.again(), sample.again()] == [0.0, 0.0]
    assert [sample() for _ in range(7)] == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0]
    whole = Dealt(deal, None)
    assert {whole() for _ in range(9)} == {3.0}
