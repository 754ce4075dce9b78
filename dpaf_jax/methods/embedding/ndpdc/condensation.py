"""What NDPDC sums of a record, and how images are fitted to the noisy sums."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods import NdpdcConfig
from dpaf_jax.methods.embedding.plan import ROW_BOUND
from dpaf_jax.networks.images import to_float
from dpaf_jax.networks.ndpdc.extractor import Extractor
from dpaf_jax.networks.ndpdc.siamese import Change, changed, draw_change
from dpaf_jax.privacy.aggregation import aggregate, dpagg
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.condensed import CondensedSampler, condensed_sampler
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import TrainState, averaged_step, make_optimizer

AGGREGATE = 'aggregate'


class Coins(NamedTuple):
    """What a step draws in public; both sides of a comparison use the same.

    Attributes:
        weights: of the random network.
        change: of all images alike.
    """

    weights: Any
    change: Change


class Aggregates(NamedTuple):
    """All that is known of the records; noisy, or public.

    Attributes:
        seeds: [M, 4] uint32 of the coins, kept since a run that goes on on another machine
            draws others.
        means: [M, K, F] noisy sums over the public expected counts; 0 before the release.
    """

    seeds: jax.Array
    means: jax.Array


@dataclasses.dataclass(frozen=True)
class Condensation:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan

    @property
    def settings(self) -> NdpdcConfig:
        """The method's fields."""
        return self.config.ndpdc

    @property
    def mechanism(self) -> Mechanism:
        """The only way from an image into an aggregate."""
        return self.plan[AGGREGATE]

    @property
    def sampler(self) -> CondensedSampler:
        """Of the images."""
        return condensed_sampler(self.config)

    @property
    def expected_counts(self) -> np.ndarray:
        """[K, 1] float32 public expected number of records of each class in a sum."""
        prior = np.array(self.config.data.prior, np.float32)
        return self.mechanism.expected_batch_size * prior[:, None]

    @functools.cached_property
    def table(self) -> tuple[int, int]:
        """(K, F), the shape of an aggregate."""
        image = jax.ShapeDtypeStruct((1, *self.config.data.shape), np.float32)
        coins = jax.eval_shape(self.coins, jax.ShapeDtypeStruct((4,), np.uint32))
        rows = jax.eval_shape(self.rows, coins, image)
        return self.config.data.num_classes, rows.shape[1]

    @property
    def _network(self) -> Extractor:
        layers = self.settings.layers(self.config.data.image_size)
        return Extractor(self.settings.width, layers)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        rate, steps = self.settings.learning_rate, self.settings.steps
        return make_optimizer('adam', rate, steps)

    def coins(self, seed: jax.Array) -> Coins:
        """The network and the change of one aggregate.

        Args:
            seed: [4] uint32, public.
        """
        key_weights, key_change = jax.random.split(public_key(seed))
        blank = jnp.zeros((1, *self.config.data.shape))
        weights = self._network.init(key_weights, blank)
        return Coins(weights, draw_change(key_change, self.config.data.image_size))

    def rows(self, coins: Coins, images: jax.Array) -> jax.Array:
        """[B, F] features of images [B, H, W, C] in [-1, 1], before the clip."""
        return self._network.apply(coins.weights, changed(coins.change, images))

    def query(self, coins: Coins, batch: ClipBatch) -> jax.Array | ExactSum:
        """This device's pre-noise table [K, F] of some of the records drawn.

        Sensitivity of the sum over all: 1 for an emptied record.
        """
        batch = batch.without_padding()
        return aggregate(
            self.rows(coins, to_float(jnp.asarray(batch.images[:, 0]))),
            jnp.asarray(batch.labels[:, 0]),
            jnp.asarray(batch.is_padding_example[:, 0]),
            self.config.data.num_classes,
            self.mechanism.bound(ROW_BOUND),
            self.mechanism.grid,
        )

    def release(self, sums: jax.Array | ExactSum, key_data: jax.Array) -> jax.Array:
        """[K, F] noisy mean rows: noise on the sum over devices, then public divisors."""
        expected = jnp.asarray(self.expected_counts)
        return dpagg(sums, key_data, self.mechanism.noise_std, expected)

    def init(self, key: jax.Array) -> TrainState:
        """Grey images with noise, {'images': [K, n, h, w, C]}: public coins."""
        return TrainState.start(self.sampler.init(key), self._optimizer)

    def condense_step(
        self, state: TrainState, seed: jax.Array, means: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Moves all images towards one aggregate: post-processing.

        Args:
            state: before.
            seed: [4] uint32, of the aggregate's coins.
            means: [K, F], the aggregate.
        """
        coins = self.coins(seed)
        loss, gradient = jax.value_and_grad(self.loss)(state.params, coins, means)
        state = averaged_step(
            self._optimizer,
            gradient,
            state,
            self.settings.ema_decay,
            project=lambda images: jax.tree.map(lambda x: jnp.clip(x, -1, 1), images),
        )
        return state, {'loss_match': loss}

    def loss(self, params: Any, coins: Coins, means: jax.Array) -> jax.Array:
        """Squared distance between the images' mean rows and `means`, over the classes."""
        images = params['images']
        k, number = images.shape[:2]
        rows = self.rows(
            coins, self.sampler.shown(images.reshape(-1, *images.shape[2:]))
        )
        labels = jnp.repeat(jnp.arange(k), number)
        everybody = jnp.zeros(len(labels), bool)
        sums = aggregate(rows, labels, everybody, k, self.mechanism.bound(ROW_BOUND))
        return jnp.mean(jnp.sum(jnp.square(sums / number - means), axis=1))
