"""Optuna's own way to propose candidates, its tree-structured Parzen estimator, which replays
compare with the tuner's. The tuner's study is tuner/searching/sampler.py."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState

from humming.spec.config import KernelConfig, config_from_dict, config_id, config_to_dict

_INFEASIBLE_US = 1e12  # ranked by the constraint, so the value only has to exist
_DUPLICATES = (
    20  # proposals seen before or illegal, after which an untried legal candidate is drawn
)
_STARTUP = 8  # results before which candidates are drawn evenly


class Sampler:
    """Ask/tell over the legal configs of one problem. Nothing is proposed twice.

    `legal` maps config id -> config; `parameters` are the choices of the search space; `seeds` are
    proposed first, in order.
    """

    def __init__(
        self,
        legal: dict[str, KernelConfig],
        parameters: dict[str, tuple[Any, ...]],
        seeds: Iterable[KernelConfig],
        seed: int = 0,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._legal = legal
        self._family = next(iter(legal.values())).family
        self._choices: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in parameters.items()
        }
        self._parameters = parameters
        self._order = list(legal)  # in which candidates are drawn; what is known beside is skipped
        random.Random(seed).shuffle(self._order)
        self._study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(
                seed=seed, multivariate=True, n_startup_trials=_STARTUP
            )
        )
        self._seeds = [config for config in seeds if config_id(config) in legal]
        self._tried: set[str] = set()
        self._results = 0
        self._trials: dict[str, optuna.trial.Trial] = {}

    @property
    def exhausted(self) -> bool:
        """Whether every legal candidate was proposed or known."""
        return len(self._tried) >= len(self._legal)

    def know(self, config: KernelConfig, us: float | None) -> None:
        """Take evidence of an earlier run: a time, or None for a candidate that failed. It is not
        proposed again."""
        self._tried.add(config_id(config))
        if us is not None:
            self._results += 1
            self._learn(config, us)

    def take(self, config: KernelConfig) -> bool:
        """Propose `config` from outside; False where it was proposed or known before."""
        if config_id(config) in self._tried:
            return False
        self._propose(config, None)
        return True

    def ask(self) -> KernelConfig | None:
        """The next candidate, or None where all were proposed."""
        while self._seeds:
            config = self._seeds.pop(0)
            if self.take(config):
                return config
        # Until the study has something to learn from it draws evenly too, but from illegal ones as
        # well, which takes long where few are legal.
        for _ in range(_DUPLICATES if self._results >= _STARTUP else 0):
            if self.exhausted:
                return None
            trial = self._study.ask(self._choices)
            config = config_from_dict({"family": self._family, **trial.params})
            if config_id(config) not in self._legal:
                trial.set_constraint("legal", 1.0)
                self._study.tell(trial, _INFEASIBLE_US)
            elif config_id(config) in self._tried:
                self._study.tell(trial, state=TrialState.FAIL)
            else:
                return self._propose(config, trial)
        drawn = next((key for key in self._order if key not in self._tried), None)
        return None if drawn is None else self._propose(self._legal[drawn], None)

    def tell(self, config: KernelConfig, us: float | None) -> None:
        """The result of a proposed candidate; None where it failed."""
        self._results += us is not None
        trial = self._trials.pop(config_id(config), None)
        if trial is None:
            if us is not None:
                self._learn(config, us)
        elif us is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, us)

    def _propose(self, config: KernelConfig, trial: optuna.trial.Trial | None) -> KernelConfig:
        self._tried.add(config_id(config))
        if trial is not None:
            self._trials[config_id(config)] = trial
        return config

    def _learn(self, config: KernelConfig, us: float) -> None:
        params = {k: v for k, v in config_to_dict(config).items() if k in self._choices}
        # A heuristic may lie off the space's grid: a categorical cannot hold it, so it teaches
        # nothing.
        if all(params[name] in choices for name, choices in self._parameters.items()):
            self._study.add_trial(
                optuna.trial.create_trial(
                    params=params, distributions=dict(self._choices), value=us
                )
            )


class Samplers:
    """The samplers of several families, asked in turn; seeds of any family come first."""

    def __init__(
        self,
        by_family: dict[str, dict[str, KernelConfig]],
        parameters: dict[str, dict[str, tuple[Any, ...]]],
        seeds: Iterable[KernelConfig],
        seed: int = 0,
    ) -> None:
        self._samplers = {
            family: Sampler(legal, parameters[family], [], seed)
            for family, legal in by_family.items()
            if legal
        }
        legal = {key for configs in by_family.values() for key in configs}
        self._seeds = [config for config in seeds if config_id(config) in legal]
        self._turns = itertools.cycle(self._samplers)

    @property
    def exhausted(self) -> bool:
        """Whether every legal candidate of every family was proposed or known."""
        return all(sampler.exhausted for sampler in self._samplers.values())

    def know(self, config: KernelConfig, us: float | None) -> None:
        """See Sampler.know."""
        self._samplers[config.family].know(config, us)

    def take(self, config: KernelConfig) -> bool:
        """See Sampler.take."""
        return self._samplers[config.family].take(config)

    def ask(self) -> KernelConfig | None:
        """The next seed, else the next candidate of the family whose turn it is; None at the
        end."""
        while self._seeds:
            config = self._seeds.pop(0)
            if self._samplers[config.family].take(config):
                return config
        for _ in self._samplers:
            proposed = self._samplers[next(self._turns)].ask()
            if proposed is not None:
                return proposed
        return None

    def tell(self, config: KernelConfig, us: float | None) -> None:
        """See Sampler.tell."""
        self._samplers[config.family].tell(config, us)
