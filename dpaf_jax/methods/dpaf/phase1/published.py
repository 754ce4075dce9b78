"""Phase 1 as printed (Algorithm 1, lines 1-5), which certifies nothing.

conv2, conv3 and FC are trained by plain SGD on the batch, and only conv1's per-example terms
are clipped, taken through the batch's aggregate: parameters that no mechanism protects then
shape every later gradient, so no epsilon follows.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.networks import Networks, Params
from dpaf_jax.methods.dpaf.phase1.classifier import (
    Classifier,
    ClassifierState,
)
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import descend


def make_classifier(
    networks: Networks, config: Config, plan: PrivacyPlan
) -> Classifier:
    """Phase 1's classifier: certified, or as printed."""
    kind = PublishedClassifier if config.privacy.as_published else Classifier
    return kind(networks, config, plan)


class PublishedClassifier(Classifier):
    """Algorithm 1 as printed: conv1 by clipped terms, all else unprotected."""

    @property
    def trained(self) -> tuple[str, ...]:
        """See `Classifier`."""
        return ('conv1',)

    def init(self, key: jax.Array) -> ClassifierState:
        """Random parameters: public coins."""
        state = super().init(key)
        _, rest = self.split(state.params)
        return state._replace(plain_opt_state=self.optimizer().init(rest))

    def step(
        self, state: ClassifierState, batch: ClipBatch, key_data: jax.Array
    ) -> tuple[ClassifierState, dict[str, Any]]:
        """conv1's noisy update, and the others' plain one, both by parameters before."""
        made, metrics = super().step(state, batch, key_data)
        params, plain = self._update(state, made.params, batch)
        return made._replace(params=params, plain_opt_state=plain), metrics

    def _batch(self, params: Params, batch: ClipBatch) -> tuple[jax.Array, ...]:
        """The whole batch's aggregate and proportions, without noise."""
        size = self.mechanism.expected_batch_size
        maps = self.normalised(params, batch.images[:, 0])
        real = 1.0 - batch.is_padding_example[:, 0].astype(jnp.float32)
        labels = jax.nn.one_hot(batch.labels[:, 0], self.networks.num_classes)
        aggregate = jnp.einsum('b,bhwc->hwc', real, maps) / size
        return parallel.total(aggregate), parallel.total(real @ labels) / size

    def query(self, params: Params, batch: ClipBatch) -> Params:
        """conv1's per-example terms, each clipped, through the batch's own aggregate."""
        batch = batch.without_padding()
        aggregate, shares = self._batch(params, batch)
        cotangent = jax.grad(lambda a: self.loss_of_aggregate(params, a, shares))(
            aggregate
        )

        def term(conv1: Params, unit: ClipBatch) -> jax.Array:
            maps = self.normalised({**params, **conv1}, unit.images)
            return jnp.vdot(cotangent, maps[0])

        return clipped_gradient_sum(
            term,
            {'conv1': params['conv1']},
            batch,
            batch.is_padding_example[:, 0],
            l2_clip_norm=self.mechanism.l2_clip_norm,
            grid=self.mechanism.grid,
            keep_fraction=self.config.dpaf.keep_fraction,
            signs=self.config.dpaf.signs,
        )

    def _update(
        self, state: ClassifierState, params: Params, batch: ClipBatch
    ) -> tuple[Params, optax.OptState]:
        """Plain SGD on conv2, conv3 and FC: line 4 of Algorithm 1, unprotected."""
        _, rest = self.split(state.params)

        def loss(rest: Params) -> jax.Array:
            everything = {**state.params, **rest}
            aggregate, shares = self._batch(everything, batch)
            return self.loss_of_aggregate(everything, aggregate, shares)

        _, gradient = parallel.value_and_gradient(loss, rest)
        rest, plain = descend(self.optimizer(), gradient, rest, state.plain_opt_state)
        return {**params, **rest}, plain
