"""The Optuna study of one problem: proposes candidates and takes their times. Optuna remembers
nothing: the study is in memory, rebuilt from evidence. The only doorway to Optuna; what it draws
from is surrogate.py, when to stop is stopping.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from humming.spec.config import KernelConfig, config_from_dict, config_id, config_to_dict
from tuner.searching.surrogate import Surrogate


class Sampler:
    """Ask/tell over the legal configs of one problem, all families together. Nothing is proposed
    twice. `legal` maps config id -> config; `seeds` are proposed first, in order.

    A trial of `study` has the parameter `family`, and the knobs of that family as `family.knob`.
    The model of times draws their values, not Optuna's TPE, which took 1.7 and 3.4 times as many
    trials on recorded sweeps of a CPU and an H200 (benchmarks/results/searchers.json).
    """

    def __init__(
        self, legal: dict[str, KernelConfig], seeds: Iterable[KernelConfig] = (), seed: int = 0
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._legal = legal
        self._model = Surrogate(legal, seeds, seed)
        self._distributions = _distributions(legal.values())
        self.study = optuna.create_study(sampler=_ModelSampler(self._model))
        self._trials: dict[str, Trial] = {}

    @property
    def exhausted(self) -> bool:
        """Whether every legal candidate was proposed or known."""
        return self._model.exhausted

    def expected_gain(self) -> float:
        """The part of the best time that more trials may be expected to save."""
        return self._model.expected_gain()

    def know(self, config: KernelConfig, us: float | None) -> None:
        """Take evidence of an earlier run: a time, or None for a candidate that failed. It is not
        proposed again."""
        self._model.know(config, us)
        if us is not None and config_id(config) in self._legal:
            params = _params(config)
            used: dict[str, BaseDistribution] = {name: self._distributions[name] for name in params}
            self.study.add_trial(create_trial(params=params, distributions=used, value=us))

    def ask(self) -> KernelConfig | None:
        """The next candidate, or None where all were proposed."""
        if self.exhausted:
            return None
        trial = self.study.ask()
        family = trial.suggest_categorical("family", self._distributions["family"].choices)
        knobs = {
            name.partition(".")[2]: trial.suggest_categorical(name, distribution.choices)
            for name, distribution in self._distributions.items()
            if name.startswith(f"{family}.")
        }
        config = config_from_dict({"family": family, **knobs})
        self._trials[config_id(config)] = trial
        return config

    def tell(self, config: KernelConfig, us: float | None) -> None:
        """The result of a proposed candidate; None where it failed."""
        self._model.tell(config, us)
        trial = self._trials.pop(config_id(config), None)
        if trial is not None:
            self.study.tell(trial, us, TrialState.FAIL if us is None else TrialState.COMPLETE)


class _ModelSampler(BaseSampler):
    """Draws a trial's values from the candidate that `model` proposes for it."""

    def __init__(self, model: Surrogate) -> None:
        self._model = model
        self._proposed: dict[str, Any] = {}

    def before_trial(self, *_: object) -> None:
        config = self._model.ask()
        self._proposed = _params(config) if config is not None else {}

    def infer_relative_search_space(self, *_: object) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(self, *_: object) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, _study: Study, _trial: FrozenTrial, param_name: str, *_: object
    ) -> Any:
        return self._proposed[param_name]


def _params(config: KernelConfig) -> dict[str, Any]:
    """A config as the values of a trial."""
    family, knobs = config.family, config_to_dict(config)
    return {"family": family, **{f"{family}.{k}": v for k, v in knobs.items() if k != "family"}}


def _distributions(configs: Iterable[KernelConfig]) -> dict[str, CategoricalDistribution]:
    """Parameter -> all values that it has in `configs`."""
    values: dict[str, dict[Any, None]] = {}
    for config in configs:
        for name, value in _params(config).items():
            values.setdefault(name, {})[value] = None
    return {name: CategoricalDistribution(tuple(found)) for name, found in values.items()}
