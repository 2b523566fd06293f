"""Laws of SearchSpace: configs() and size() agree, and so do prune() and rejected_by()."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming.errors import SpaceError
from humming.spec.device import Device
from search_spaces import Constraint, SearchSpace, select
from search_spaces.expression import NUMBER
from search_spaces.grammar import parse

NAMES = ("a", "b", "c", "m")
EXPRESSIONS = (
    "a <= m",
    "a * b <= 6",
    "b != 2 or c == 1",
    "m in [1, 2, 3]",
    "a + b + c > m",
    "a % 2 == c % 2",
    "max(a, c) >= b",
)


def _constraint(text: str, index: int = 0) -> Constraint:
    return Constraint(
        parse(text, dict.fromkeys(NAMES, NUMBER)), f"because {text}", f"x.yaml:{index}"
    )


_spaces = st.builds(
    lambda parameters, texts: SearchSpace(
        "x", "cpu", parameters, tuple(_constraint(text) for text in texts)
    ),
    st.fixed_dictionaries(
        {
            name: st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True).map(tuple)
            for name in ("b", "c", "a")
        }
    ),
    st.lists(st.sampled_from(EXPRESSIONS), max_size=4),
)


@given(_spaces)
def test_configs_are_deterministic_distinct_and_as_many_as_size_says(space):
    configs = list(space.configs())
    assert configs == list(pickle.loads(pickle.dumps(space)).configs())
    assert len({tuple(config.items()) for config in configs}) == len(configs) == space.size()
    assert all(
        list(config) == list(space.parameters)
        and all(config[name] in values for name, values in space.parameters.items())
        for config in configs
    )


@given(_spaces, st.integers(0, 6))
def test_prune_keeps_what_no_constraint_rejects_and_counts_each_other_once(space, m):
    context = {"m": m}
    pruned = space.prune(context)
    kept = [c for c in space.configs() if space.rejected_by(c, context) is None]
    assert list(pruned.configs) == kept
    assert len(kept) + sum(pruned.rejected.values()) == space.size()
    assert set(pruned.rejected) <= {constraint.reason for constraint in space.constraints}


def test_rejected_by_gives_the_first_reason_in_the_order_of_the_file():
    space = SearchSpace("x", "cpu", {"a": (9,)}, (_constraint("a < 9"), _constraint("a <= m")))
    assert space.rejected_by({"a": 9}, {"m": 1}) == "because a < 9"
    assert space.rejected_by({"a": 8}, {"m": 1}) == "because a <= m"
    assert space.rejected_by({"a": 8}, {"m": 8}) is None


def test_a_constraint_that_divides_by_zero_names_its_line():
    space = SearchSpace("x", "cpu", {"a": (1,)}, (_constraint("a // m > 0", 12),))
    with pytest.raises(SpaceError) as error:
        space.prune({"m": 0})
    assert str(error.value).startswith("x.yaml:12: `a // m > 0`: division by zero")


def _space(name: str, arch: str, formats: str, family: str = "cpu") -> SearchSpace:
    return SearchSpace(name, family, {}, (), f"{name}.yaml", tuple(arch.split()), (formats,))


X86 = Device("cpu", "a CPU", "x86_64", 1 << 20)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (("x86_64", "*"), ("*", "int4g128")),  # the arch counts first
        (("x86_64", "int4g128"), ("x86_64", "int4*")),
        (("x86_*", "int4g1*"), ("x86_*", "int*")),
        (("arm64 x86_64", "*"), ("x86_6?", "*")),  # no wildcard beats many literal characters
        (("*", "int*"), ("aarch64", "int4g128")),  # the other does not fit at all
    ],
)
def test_the_most_specific_space_is_selected(better, worse):
    spaces = (_space("worse", *worse), _space("better", *better), _space("gpu", "x86_64", "*", "g"))
    assert select(spaces, "cpu", X86, "int4g128").name == "better"
    assert select(spaces[::-1], "cpu", X86, "int4g128").name == "better"


def test_two_spaces_that_fit_equally_well_are_refused():
    spaces = (_space("one", "x86_64", "int*"), _space("two", "x86_64", "int*"))
    with pytest.raises(SpaceError, match=r"one.yaml and two.yaml fit .* equally well"):
        select(spaces, "cpu", X86, "int4g128")


def test_no_space_that_fits_says_what_there_is():
    with pytest.raises(SpaceError, match=r"one is for arch sm90, formats int\*"):
        select((_space("one", "sm90", "int*"),), "cpu", X86, "int4g128")
    with pytest.raises(SpaceError, match="the family has none"):
        select((), "cpu", X86, "int4g128")
