"""Phase 1 of DPAF as a labeller: a linear classifier, learnt by DP-SGD and kept.

The published phase 1 trains a classifier, keeps its conv1 and throws the rest away. Here
conv1 is fixed and public: wavelets, or what a public network sees (`classifier.features`). The
rest is one linear layer, and that is what is kept: it says which class a synthetic image
shows. The generator then only has to cover the images, not to get every label right, and what
is near a border between classes gets the label of the side that it lies on, which is what a
classifier trained on it needs to know.

Guarantee: with features of norm at most 1, a record's gradient is an outer product of them
and of its error, whose norm is clipped to C; the sum over a Poisson sample moves by at most
C when one record is emptied, in exact arithmetic (`Grid.outer_sum`). Neighbours: zero-out.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.clipping import clip_vector
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.noise import noisy_mean
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.summation import settled
from dpaf_jax.release.samplers.dpaf import (
    LABELLER,
    init_weights,
    labeller_features,
)
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import descend, make_optimizer

Params = dict[str, jax.Array]
# Products take eight bits of a feature (`Grid.outer_sum`): so many does this keep.
FEATURE = jnp.bfloat16

# At as many records x epsilon 200 steps of 15 are best; nothing was compared above ten times
# as many. Long they are because features have norm 1: gradients are small.
REFERENCE, MOST = 60_000, 10.0
# Where records are few and epsilon is large, it is the records that mislead: a rate of
# at most one for so many.
RECORDS_PER_RATE = 600


def steps_and_rate(config: Config, num_examples: int) -> tuple[float, float]:
    """How many steps the labeller takes, and their learning rate, by N and N x epsilon.

    A step's noise is to its gradient as 1 to N x epsilon: less noise bears more steps, and
    longer ones, up to what so few records can teach. Compared on MNIST and Fashion-MNIST,
    with optimizer = 'momentum' (docs/research/2026-11-23-labeller-records.md).

    Args:
        config: `privacy.epsilon` is of all that DPAF does.
        num_examples: N, public.
    """
    share = min(num_examples * config.privacy.epsilon / REFERENCE, MOST)
    rate = min(15 * share**0.7, num_examples / RECORDS_PER_RATE)
    return 200 * share**0.2, rate


class LabellerState(NamedTuple):
    """{'weights': [F, K]} and the optimiser's state: functions of noisy sums."""

    params: Params
    optimizer: optax.OptState


@dataclasses.dataclass(frozen=True)
class Labeller:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan

    @property
    def mechanism(self) -> Mechanism:
        """The one that its training is."""
        return self.plan[LABELLER]

    def init(self, key: jax.Array) -> LabellerState:
        """Needs no coins; `key` is what every phase's parts get."""
        del key
        params = init_weights(self.config)
        return LabellerState(params, self._optimizer().init(params))

    def _optimizer(self) -> optax.GradientTransformation:
        config = self.config.dpaf.classifier
        rate = config.learning_rate
        rate = rate or steps_and_rate(self.config, self.plan.num_examples)[1]
        return make_optimizer(config.optimizer, rate)

    def features(self, images: jax.Array) -> jax.Array:
        """What a step reads of images: a function of each alone, without parameters.

        Args:
            images: [n, H, W, C] uint8.

        Returns:
            [n, 1, F, 1] of type `FEATURE`: images of another kind, for a `Feed`.
        """
        rows = labeller_features(self.config, to_float(images)).astype(FEATURE)
        return rows[:, None, :, None]

    def query(self, params: Params, batch: ClipBatch) -> ExactSum | jax.Array:
        """This device's pre-noise sum of clipped gradients of the cross-entropy.

        Sensitivity of the sum over devices: `mechanism.l2_sensitivity`, see the module.

        Args:
            params: public or noised.
            batch: singletons; for images, their `features` may stand.

        Returns:
            [F, K].
        """
        batch = batch.without_padding()
        rows = batch.images[:, 0]
        if rows.dtype != FEATURE:
            rows = self.features(rows)
        rows = rows.reshape(len(rows), -1).astype(jnp.float32)
        # Their norm is 1 but for rounding; clipped all the same, and for images that are not
        # finite.
        rows = jax.vmap(lambda row: clip_vector(row, 1.0))(settled(rows))
        truth = jax.nn.one_hot(batch.labels[:, 0], self.config.data.num_classes)
        errors = jax.nn.softmax(rows @ params['weights']) - truth
        bound = self.mechanism.l2_sensitivity
        errors = jax.vmap(lambda error: clip_vector(error, bound))(settled(errors))
        errors = jnp.where(batch.is_padding_example, 0.0, errors)
        if self.mechanism.grid is None:
            return jnp.matmul(rows.T, errors, precision='highest')
        return self.mechanism.grid.outer_sum(rows, errors, bound)

    def step(
        self, state: LabellerState, batch: ClipBatch, key_data: jax.Array
    ) -> tuple[LabellerState, dict[str, Any]]:
        """One DP-SGD update; the divisor is public."""
        sums = self.query(state.params, batch)
        gradient = {'weights': noisy_mean(sums, key_data, self.mechanism)}
        state = LabellerState(
            *descend(self._optimizer(), gradient, state.params, state.optimizer)
        )
        return state, {'noisy_gradient_norm': optax.tree.norm(gradient)}
