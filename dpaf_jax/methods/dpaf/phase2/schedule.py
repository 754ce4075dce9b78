"""What phase 2 does when, and how many are expected: public numbers alone."""

import dataclasses
import math

import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.plan import class_turns, dpagg_steps
from dpaf_jax.methods.dpaf.taps.features import along_axes
from dpaf_jax.methods.dpaf.taps.layout import TapLayout
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.training.phase import window_length

FEWEST_STEPS, MOST_STEPS = 100, 2000  # of the generator, behind one table
# Where the table's noise is as long as a row's bound: about as many as fakes take to come as
# near as the noise is long. Along axes they come near sooner.
NOISY_STEPS, NOISY_STEPS_ON_AXES = 240, 50
ON_AXES = 0.5  # along axes the same noise is half as long: a quarter of the columns
EARLY = 3  # by how many the fakes of a step are fewer before the distance is whitened


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The public schedule of a run, from config and plan."""

    config: Config
    plan: PrivacyPlan
    taps: TapLayout

    @property
    def dpagg(self) -> Mechanism:
        """The forward mechanism."""
        return self.plan['dpagg']

    @property
    def class_pure(self) -> bool:
        """Whether every class has its own aggregate."""
        return self.config.dpaf.batches == 'class_pure'

    @property
    def num_aggregates(self) -> int:
        """A, the aggregates of DPAGG."""
        return self.config.data.num_classes if self.class_pure else 1

    @property
    def turns(self) -> int:
        """DPAGG steps until every class has had one."""
        return class_turns(self.config)

    @property
    def dpagg_steps(self) -> int:
        """DPAGG steps of the whole run."""
        return dpagg_steps(self.config, self.dpagg)

    def active(self, step: int) -> np.ndarray:
        """[A] bool: the aggregates of DPAGG step `step`; a round-robin over classes."""
        number = self.num_aggregates // self.turns
        return np.arange(self.num_aggregates) // number == step % self.turns

    def updates_generator(self, step: int) -> bool:
        """Whether the generator is updated behind DPAGG step `step`."""
        return (step + 1) % self.config.dpaf.n_critic == 0

    @property
    def generator_steps(self) -> int:
        """Generator steps in a round, post-processing: as asked, or by the table's noise.

        Where noise is long the last of many steps learn it
        (docs/research/2026-11-28-steps-by-noise.md, 2026-11-29-steps-along-axes.md).
        """
        longest = NOISY_STEPS_ON_AXES if along_axes(self.config) else NOISY_STEPS
        by_noise = longest / self.noise_length if self.noise_length else math.inf
        within = max(FEWEST_STEPS, 10 * round(min(by_noise, MOST_STEPS) / 10))
        return self.config.dpaf.generator_steps or within

    @property
    def trains_head(self) -> bool:
        """Whether anything needs the discriminator's head."""
        return self.config.dpaf.generator.adversarial or 'conv2' in self.plan

    @property
    def head_memory(self) -> int:
        """R, how many aggregates of each kind the head reads at a step."""
        return self.config.dpaf.head.memory if self.trains_head else 0

    @property
    def fixed_batches(self) -> bool:
        """Whether batches of reals are of one size: shuffled, as printed."""
        return self.config.privacy.as_published

    @property
    def expected_counts(self) -> np.ndarray:
        """[A, 1] float32 public expected number of records in each aggregate."""
        m, n = self.dpagg, self.plan.num_examples
        shares = self.config.data.prior if self.class_pure else (1.0,)
        return np.array([[m.sampling_prob * n * s] for s in shares], np.float32)

    @property
    def num_fakes(self) -> np.ndarray:
        """[A] fakes for each aggregate.

        In small batches as many as reals are expected, if the generator's batch has so many.
        """
        most = self.config.dpaf.generator.batch_size
        if self.config.dpaf.batch_size:
            expected = self.expected_counts[:, 0]
            share = min(1.0, most / float(expected.sum()))
            return np.maximum(1, (share * expected).round()).astype(int)
        return np.full(self.num_aggregates, max(1, most // self.num_aggregates))

    @property
    def noise_lengths(self) -> np.ndarray:
        """[A] of noised mean rows of as many records as expected, in units of a bound."""
        each: np.ndarray = self.dpagg.noise_std / self.expected_counts / self.taps.bound
        return math.sqrt(self.taps.size) * each[:, 0]

    @property
    def noise_length(self) -> float:
        """The mean of `noise_lengths`."""
        return float(np.mean(self.noise_lengths))

    @property
    def whiten_below(self) -> float:
        """The longest noise with which `loss_match` is whitened."""
        limit = self.config.dpaf.generator.whiten_below or math.inf
        return limit * (ON_AXES if along_axes(self.config) else 1.0)

    @property
    def whitenings(self) -> int:
        """How often `loss_match` is whitened: never where the noise is too long for it."""
        asked = self.config.dpaf.generator.whitenings
        return asked if self.noise_length <= self.whiten_below else 0

    def fakes_per_aggregate(self, is_whitened: bool) -> int:
        """How many fakes a step of `loss_match` looks at.

        Before the distance is whitened gaps are large: a share of the fakes tells them
        (docs/research/2026-11-27-fewer-fakes-first.md).
        """
        number = self.config.dpaf.generator.batch_size
        if self.whitenings and not is_whitened:
            number //= EARLY
        return max(2, number // self.num_aggregates)

    @property
    def updates_per_part(self) -> int:
        """Generator steps with one metric, which have an optimiser of their own.

        In whole windows of any machine that the run may go on at.
        """
        rounds = self.dpagg_steps // self.config.dpaf.n_critic
        updates = rounds * self.generator_steps
        unit = window_length(self.generator_steps, unrolls=False)
        return -(-updates // ((self.whitenings + 1) * unit)) * unit
