"""Phase 1 of DPAF as a labeller: a linear classifier, learnt by DP-SGD and kept.

The published phase 1 trains a classifier, keeps its conv1 and throws the rest away. Here
conv1 is fixed and public: wavelets, or what a network sees (`classifier.features`). The rest
is one linear layer, and that is what is kept: it says which class a synthetic image shows.
The generator then only has to cover the images, not to get every label right, and what is
near a border between classes gets the label of the side that it lies on, which is what a
classifier trained on it needs to know.

Where features are read along the axes of random pictures (`combined`), it learns in their
units, in which gradients point where images differ. What is kept is linear on the features
themselves.

Guarantee: with features of norm at most 1, whatever the axes, a record's gradient is an outer
product of them and of its error, whose norm is clipped to C; the sum over a Poisson sample
moves by at most C when one record is emptied, in exact arithmetic (`Grid.outer_sum`).
Neighbours: zero-out.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods.dpaf import COMBINED
from dpaf_jax.methods.dpaf.axes import Axes, along, init_axes, num_axes, of_pictures
from dpaf_jax.methods.dpaf.networks import Params
from dpaf_jax.networks.images import to_float
from dpaf_jax.networks.rows import side_by_side
from dpaf_jax.privacy.clipping import clip_vector
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.noise import noisy_mean
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.summation import settled
from dpaf_jax.release.samplers.dpaf import LABELLER, num_read, parts_read
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import descend, make_optimizer

# Products take eight bits of a feature (`Grid.outer_sum`): so many does this keep.
FEATURE = jnp.bfloat16

# At as many records x epsilon 200 steps of 15 are best; nothing was compared above ten times
# as many. Long they are because features have norm 1: gradients are small.
REFERENCE, MOST = 60_000, 10.0
# Where records are few and epsilon is large, it is the records that mislead: a rate of
# at most one for so many.
RECORDS_PER_RATE = 600
# Of `init_axes`. Well within the bound: what a row is clipped to, a released labeller does
# not know of.
POWER, WITHIN = 0.25, 0.75


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
    """`weights` [F, K], the optimiser's state: functions of noisy sums; public `axes`."""

    params: Params
    opt_state: optax.OptState


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
        """Weights of zero, and the axes that public coins give."""
        columns, axes = num_read(self.config), {}
        if self.config.dpaf.classifier.features == COMBINED:
            axes = {'axes': self._init_axes(key)}
            columns[1] = num_axes(columns[1])
        weights = {'weights': jnp.zeros((sum(columns), self.config.data.num_classes))}
        return LabellerState(weights | axes, self._optimizer().init(weights))

    def _init_axes(self, key: jax.Array) -> Axes:
        def seen(images: jax.Array) -> jax.Array:
            return parts_read(self.config, images)[1]

        pictures = of_pictures(seen, key, self.config.data.shape)
        return init_axes(pictures, POWER, WITHIN)

    def _optimizer(self) -> optax.GradientTransformation:
        config = self.config.dpaf.classifier
        rate = config.learning_rate
        rate = rate or steps_and_rate(self.config, self.plan.num_examples)[1]
        return make_optimizer(config.optimizer, rate)

    def features(self, params: Params, images: jax.Array) -> jax.Array:
        """What a step reads of images: a function of each alone, without its weights.

        Args:
            params: of which it reads the axes.
            images: [n, H, W, C] uint8.

        Returns:
            [n, 1, F, 1] of type `FEATURE`: images of another kind, for a `Feed`.
        """
        parts = parts_read(self.config, to_float(images))
        if 'axes' in params:
            parts[1] = along(parts[1], params['axes'])
        return side_by_side(parts).astype(FEATURE)[:, None, :, None]

    def learnt(self, params: Params) -> Params:
        """What is kept: parameters of `LabelledSampler`, scaled.

        The mean square of the classes' weights has length 1 then, so that a logit is at most
        sqrt(K).

        Args:
            params: of the last state.

        Returns:
            As `init_weights` has them: linear on `labeller_features`, without axes.
        """
        weights = params['weights']
        # Of a labeller that has learnt nothing all weights are 0.
        length = jnp.sqrt(jnp.sum(jnp.square(weights)) / weights.shape[1] + 1e-12)
        weights = weights / length
        if 'axes' not in params:
            return {'weights': weights}
        axes, (wavelets, _) = params['axes'], num_read(self.config)
        seen = axes['directions'] @ weights[wavelets:]
        return {
            'weights': jnp.concatenate([weights[:wavelets], seen]),
            'bias': -axes['mean'] @ seen / math.sqrt(2),
        }

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
            rows = self.features(params, rows)
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
        weights = {'weights': state.params['weights']}
        moved, opt_state = descend(
            self._optimizer(), gradient, weights, state.opt_state
        )
        state = LabellerState(state.params | moved, opt_state)
        return state, {'noisy_gradient_norm': optax.tree.norm(gradient)}
