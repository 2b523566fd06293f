"""The built-in space for CPUs: it never runs dry, and it stays affordable."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.spec.config import CpuConfig, config_from_dict
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.legality import config_violations, takes
from humming.spec.problem import Problem
from search_spaces import context_of, load_spaces, select
from search_spaces.check import WORDS
from search_spaces.context import NAMES

SPACES = load_spaces()
HAS = {
    "generic": (),
    "avx2": ("avx2",),
    "avx512": ("avx512", "avx2"),
    "avx512_bf16": ("avx512_bf16", "avx512"),
}
"""The best code path of a CPU -> the code paths that are tried on it."""


def _cpu(code_path: str, threads: int | None = 2, l2_bytes: int | None = 1 << 20) -> Device:
    isa = tuple(sorted(CODE_PATH_FLAGS[code_path]))
    return Device(
        "cpu", "a CPU", "x86_64", 32 << 20, isa=isa, threads=threads, l2_bytes_per_core=l2_bytes
    )


def _legal(problem: Problem, device: Device) -> list[CpuConfig]:
    space = select(SPACES, "cpu", device, problem.format)
    configs = [
        config_from_dict({"family": space.family, **values})
        for values in space.prune(context_of(problem, device)).configs
    ]
    return [config for config in configs if not config_violations(config, problem, device)]


@settings(deadline=None)
@given(
    st.builds(
        Problem,
        st.just("int4g128"),
        n=st.integers(1, 200_000),
        k=st.integers(1, 1000).map(lambda blocks: 32 * blocks),
        m=st.integers(0, 20) | st.integers(0, 2**31 - 1),
        activation_dtype=st.sampled_from(["bf16", "fp16", "fp32"]),
    ),
    st.builds(
        _cpu,
        st.sampled_from(list(CODE_PATH_FLAGS)),
        st.none() | st.integers(1, 512),
        st.none() | st.integers(0, 1 << 24),
    ),
)
def test_every_problem_on_every_cpu_has_a_candidate(problem, device):
    configs = _legal(problem, device)
    assert configs
    best = [path for path in CODE_PATH_FLAGS if device.supports(path) and takes(path, problem)][-1]
    tried = {config.code_path for config in configs}
    assert best in tried
    assert tried <= set(HAS[best]) | {best}


@pytest.mark.parametrize("n, k", [(1024, 2048), (4096, 1024), (6144, 4096), (151936, 1024)])
@pytest.mark.parametrize("m", [1, 2, 4, 8, 16, 17, 64, 256, 4096])
@pytest.mark.parametrize("code_path", ["avx512", "avx512_bf16"])
def test_candidates_of_a_layer_fit_a_budget_of_seconds(n, k, m, code_path):
    configs = _legal(Problem("int4g128", n, k, m), _cpu(code_path))
    assert 60 <= len(configs) <= 250
    mainloops = {config.mainloop for config in configs}
    assert ("stream" in mainloops) == (m <= 48 or code_path == "avx512_bf16")
    assert ("blocked" in mainloops) == (m >= 8)


def test_k_is_shared_only_where_tiles_are_too_few_for_the_threads():
    few, many = Problem("int4g128", 64, 8192, 1), Problem("int4g128", 65536, 8192, 1)
    assert {config.split_k for config in _legal(few, _cpu("avx512", 16))} > {1, 4}
    assert {config.split_k for config in _legal(many, _cpu("avx512", 16))} == {1}
    assert {config.split_k for config in _legal(few, _cpu("avx512", 1))} == {1}


@pytest.mark.parametrize(("knob", "words"), [(knob, words) for (_, knob), words in WORDS.items()])
def test_the_words_of_a_knob_are_those_that_legality_knows(knob, words):
    problem, device = Problem("int4g128", 64, 128, 1), _cpu("avx512_bf16")
    device = replace(device, isa=tuple({f for flags in CODE_PATH_FLAGS.values() for f in flags}))
    legal = CpuConfig("stream", "avx512", 1, 16, 128, 1, 0, 1)
    for word in words:
        broken = config_violations(CpuConfig(**{**vars(legal), knob: word}), problem, device)
        assert f"cpu_{knob}" not in [violation.rule for violation in broken]
    broken = config_violations(CpuConfig(**{**vars(legal), knob: "other"}), problem, device)
    assert f"cpu_{knob}" in [violation.rule for violation in broken]


def test_context_has_every_name_and_no_knob_is_called_like_one():
    gpu = Device("cuda", "a GPU", "sm90", 50 << 20, sm_count=132)
    context = context_of(Problem("int4g128", 64, 128, 3), gpu)
    assert context == {
        "m": 3,
        "n": 64,
        "k": 128,
        "cache_bytes": 50 << 20,
        "sm_count": 132,
        "bits": 4,
        "experts_met": 1,
    } | dict.fromkeys(
        (
            "threads",
            "l2_bytes",
            "capability",
            "has_avx2",
            "has_avx_vnni",
            "has_avx512",
            "has_avx512_vnni",
            "has_avx512_bf16",
        ),
        0,
    )
    for space in SPACES:
        assert not set(NAMES) & set(space.parameters)
