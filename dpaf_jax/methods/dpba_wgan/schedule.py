"""Whose turn each critic step is, and with which noise: public numbers.

Where each label has a model of its own, models take turns of `discriminator_steps` by a
round-robin; all of them see the same noise in the same order.
"""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.methods.dpba_wgan.plan import (
    critic_mechanisms,
    is_published,
    num_models,
    scale_of_step,
)
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Of the critic steps of a run; `step` counts those of all models."""

    config: Config
    plan: PrivacyPlan

    @functools.cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Of the critic, one for each scale of the noise; they differ in nothing else."""
        return critic_mechanisms(self.plan)

    def mechanism_at(self, step: int) -> Mechanism:
        """The mechanism of the plan that a step belongs to."""
        return self.mechanisms[self._mechanism_of_step[self.own_step(step)]]

    def own_step(self, step: int) -> int:
        """How many steps the model has had before whose turn it is."""
        rounds, since = divmod(step, self._turn * self._models)
        return rounds * self._turn + since % self._turn

    def label(self, step: int) -> int:
        """Whose turn it is, where each label has a model."""
        return step // self._turn % self._models

    def charged(self, step: int) -> Mapping[str, int]:
        """Steps of each mechanism before `step`, of the first model: none is ahead of it."""
        rounds, since = divmod(step, self._turn * self._models)
        done = self._mechanism_of_step[: rounds * self._turn + min(since, self._turn)]
        counts = np.bincount(done, minlength=len(self.mechanisms))
        names = [m.name for m in self.mechanisms]
        return dict(zip(names, map(int, counts), strict=True))

    @property
    def _turn(self) -> int:
        return self.config.dpba_wgan.discriminator_steps

    @property
    def _models(self) -> int:
        return num_models(self.config)

    @functools.cached_property
    def _mechanism_of_step(self) -> np.ndarray:
        """[T] int: place in `mechanisms` of that of each step of a model."""
        scale = scale_of_step(self.config.dpba_wgan, self._models)
        if is_published(self.config):
            return np.zeros_like(scale)
        # The plan leaves out scales that no step has.
        return np.unique(scale, return_inverse=True)[1]
