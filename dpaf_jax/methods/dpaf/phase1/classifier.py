"""Phase 1 of DPAF: a classifier whose conv1 is kept (Algorithm 1, lines 1-5).

C predicts the class proportions of an aggregate. Certified modes, by what is clipped:
each unit (one record, or one group of records that a draw dealt together) is its own
aggregate, and the gradient of its loss by every trained parameter is clipped. So one
record moves the sum by at most C (singletons) or 2C (groups), at every step, whatever
the parameters have become; nothing else of the data persists.

Algorithm 1 as printed is `published.PublishedClassifier`.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.networks import Networks, Params
from dpaf_jax.methods.dpaf.taps.features import sin_maps
from dpaf_jax.networks import losses
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.noise import noisy_mean
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import descend, make_optimizer


class ClassifierState(NamedTuple):
    """Parameters {'conv1', 'conv2', 'head'} and the optimisers' states."""

    params: Params
    opt_state: optax.OptState
    plain_opt_state: optax.OptState  # of the unprotected part; as_published only


@dataclasses.dataclass(frozen=True)
class Classifier:
    """The static part of phase 1; its methods are pure functions of arrays."""

    networks: Networks
    config: Config
    plan: PrivacyPlan

    @property
    def mechanism(self) -> Mechanism:
        """The one that conv1's training is."""
        return self.plan['conv1']

    @property
    def trained(self) -> tuple[str, ...]:
        """Parts inside the clipped vector."""
        everything = self.config.dpaf.classifier.private == 'all'
        return ('conv1', 'conv2', 'head') if everything else ('conv1',)

    def init(self, key: jax.Array) -> ClassifierState:
        """Random parameters: public coins."""
        data, net = self.config.data, self.networks
        image = jnp.zeros((1, *data.shape))
        planes = jnp.zeros((1, data.num_classes))
        keys = jax.random.split(key, 3)
        conv1 = net.conv1.init(keys[0], image, planes)
        maps1 = net.conv1.apply(conv1, image, planes)
        conv2 = net.conv2.init(keys[1], maps1)
        maps2 = net.conv2.apply(conv2, maps1)
        head = net.classifier_head.init(keys[2], maps2)
        params = {'conv1': conv1, 'conv2': conv2, 'head': head}
        trained, _ = self.split(params)
        optimizer = self.optimizer()
        return ClassifierState(params, optimizer.init(trained), ())

    def optimizer(self) -> optax.GradientTransformation:
        """Of what is trained."""
        config = self.config.dpaf.classifier
        return make_optimizer(config.optimizer, config.learning_rate)

    def split(self, params: Params) -> tuple[Params, Params]:
        """Parameters inside the clipped vector, and the rest."""
        trained = {name: params[name] for name in self.trained}
        return trained, {n: p for n, p in params.items() if n not in self.trained}

    def normalised(self, params: Params, images: jax.Array) -> jax.Array:
        """[B, H, W, C] SIN maps of [B, H, W, C] uint8 images."""
        # With the label planes C could read the answer off, so it gets none.
        no_label = jnp.full(len(images), -1)
        return sin_maps(self.networks, params, to_float(images), no_label)[1]

    def loss_of_aggregate(
        self, params: Params, aggregate: jax.Array, shares: jax.Array
    ) -> jax.Array:
        """L_MSE of an aggregate [H, W, C] and its class shares [K]."""
        logits = self.networks.classifier_head.apply(params['head'], aggregate[None])
        return losses.proportions_error(logits, shares[None])

    def unit_loss(self, params: Params, unit: ClipBatch) -> jax.Array:
        """L_MSE of one unit, its members aggregated: [M, ...] arrays to a scalar."""
        real = 1.0 - unit.is_padding_example.astype(jnp.float32)
        maps = self.normalised(params, unit.images)
        size = self.mechanism.expected_unit_size
        aggregate = jnp.einsum('m,mhwc->hwc', real, maps) / size
        labels = jax.nn.one_hot(unit.labels, self.networks.num_classes)
        # Inside the clipped unit its true size may be used.
        shares = (real @ labels) / jnp.maximum(jnp.sum(real), 1.0)
        return self.loss_of_aggregate(params, aggregate, shares)

    def query(self, params: Params, batch: ClipBatch) -> Params:
        """This device's pre-noise sum, by every trained parameter.

        Sensitivity of the sum over devices: `mechanism.l2_sensitivity`, see the module.
        """
        trained, rest = self.split(params)
        batch = batch.without_padding()
        return clipped_gradient_sum(
            lambda p, unit: self.unit_loss({**rest, **p}, unit),
            trained,
            batch,
            jnp.all(batch.is_padding_example, axis=1),
            l2_clip_norm=self.mechanism.l2_clip_norm,
            grid=self.mechanism.grid,
            keep_fraction=self.config.dpaf.keep_fraction,
            signs=self.config.dpaf.signs,
        )

    def step(
        self, state: ClassifierState, batch: ClipBatch, key_data: jax.Array
    ) -> tuple[ClassifierState, dict[str, jax.Array]]:
        """One DP-SGD update; the divisor is public."""
        sums = self.query(state.params, batch)
        gradient = noisy_mean(sums, key_data, self.mechanism)
        trained, rest = self.split(state.params)
        trained, opt_state = descend(
            self.optimizer(), gradient, trained, state.opt_state
        )
        norm = optax.tree.norm(gradient)
        state = ClassifierState({**rest, **trained}, opt_state, state.plain_opt_state)
        return state, {'noisy_gradient_norm': norm}
