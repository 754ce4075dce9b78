"""One pass over the data sums embedded records, then a generator is matched to the sum.

The joint distribution of image and label is embedded by a row of features of the image
times the one-hot label. One Gaussian makes the sum private. All that follows is
post-processing: the generator is trained until its own mean embedding is near. Which
features, is the method's: DP-MERF, DP-Kernel, DP-HP and PEARL differ in nothing else, but
that PEARL's critic weighs them.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods import EmbeddingConfig
from dpaf_jax.methods.embedding.plan import EMBEDDING, ROW_BOUND, settings_of
from dpaf_jax.networks import losses
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.aggregation import aggregate, dpagg
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch, membership, share_of_fakes
from dpaf_jax.training.optimizers import (
    TrainState,
    averaged_step,
    descend,
    make_optimizer,
)
from dpaf_jax.training.phase import Metrics


class FeatureMap(Protocol):
    """Features of an image alone: a fixed function once its public coins are drawn."""

    @property
    def features(self) -> int:
        """F, the length of a row."""

    def init(self, key: jax.Array) -> Any:
        """The public coins of the features, a tree of arrays."""

    def rows(self, coins: Any, images: jax.Array) -> jax.Array:
        """Rows [B, F] of norm at most 1 of images [B, H, W, C] in [-1, 1]."""


class Critic(Protocol):
    """Weighs the features, against the generator; sees released and public numbers alone."""

    @property
    def every(self) -> int:
        """Generator steps between two of the critic's."""

    @property
    def learning_rate(self) -> float:
        """Adam's."""

    def init(self) -> Any:
        """Parameters at which all features weigh the same."""

    def weights(self, params: Any, coins: Any) -> jax.Array:
        """[F] float32, not below 0, with mean 1."""


class MatchState(NamedTuple):
    """Everything that persists between steps; all of it is released or public.

    Attributes:
        coins: of the features.
        embedding: [K, F] noisy mean row of each class; 0 before the release.
        generator: parameters, their moving average, and what else its steps need.
        critic: parameters and Adam's state; empty where the method has none.
    """

    coins: Any
    embedding: jax.Array
    generator: TrainState
    critic: Any


@dataclasses.dataclass(frozen=True)
class Matching:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan
    num_devices: int
    feature_map: FeatureMap
    critic: Critic | None = None

    @property
    def settings(self) -> EmbeddingConfig:
        """The fields that all methods of this kind have."""
        return settings_of(self.config)

    @property
    def mechanism(self) -> Mechanism:
        """The one release."""
        return self.plan[EMBEDDING]

    @property
    def expected_counts(self) -> np.ndarray:
        """[K, 1] float32 public expected number of records in each class."""
        prior = np.array(self.config.data.prior, np.float32)
        return self.plan.num_examples * prior[:, None]

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        settings = self.settings
        rate, steps = settings.learning_rate, settings.generator_steps
        return make_optimizer('adam', rate, steps)

    def init(self, key: jax.Array) -> MatchState:
        """Random features and parameters: public coins."""
        key_coins, key_generator = jax.random.split(key)
        generator = latent_sampler(self.config).init(key_generator)
        table = self.config.data.num_classes, self.feature_map.features
        return MatchState(
            coins=self.feature_map.init(key_coins),
            embedding=jnp.zeros(table),
            generator=TrainState.start(generator, self._optimizer),
            critic=self._init_critic(),
        )

    def _init_critic(self) -> Any:
        if self.critic is None:
            return ()
        params = self.critic.init()
        return params, self._critic_optimizer(self.critic).init(params)

    def _critic_optimizer(self, critic: Critic) -> optax.GradientTransformation:
        return make_optimizer('adam', critic.learning_rate)

    def query(self, coins: Any, batch: ClipBatch) -> jax.Array | ExactSum:
        """This device's pre-noise table [K, F] of some of the records.

        Sensitivity of the sum over all: 1 for an emptied record, 2 for a replaced one.
        """
        batch = batch.without_padding()
        images, labels = batch.images[:, 0], batch.labels[:, 0]
        return aggregate(
            self.feature_map.rows(coins, to_float(images)),
            labels,
            batch.is_padding_example[:, 0],
            self.config.data.num_classes,
            self.mechanism.bound(ROW_BOUND),
            self.mechanism.grid,
        )

    def release(
        self, state: MatchState, sums: jax.Array | ExactSum, key_data: jax.Array
    ) -> MatchState:
        """Noise on the sum over devices, once; then the public divisor."""
        expected = jnp.asarray(self.expected_counts)
        embedding = dpagg(sums, key_data, self.mechanism.noise_std, expected)
        return state._replace(embedding=embedding)

    def generator_step(
        self, state: MatchState, key_data: jax.Array
    ) -> tuple[MatchState, Metrics]:
        """One update of the generator towards the released embedding: post-processing."""
        key = public_key(key_data)
        if self.critic is not None:
            state = self._criticised(self.critic, state, jax.random.fold_in(key, 1))
        weights = self._weights(state.critic, state)
        loss, gradient = parallel.value_and_gradient(
            lambda generator: self._loss(generator, weights, state, key),
            state.generator.params,
        )
        decay = self.settings.ema_decay
        stepped = averaged_step(self._optimizer, gradient, state.generator, decay)
        return state._replace(generator=stepped), {'loss_match': loss}

    def _weights(self, critic: Any, state: MatchState) -> jax.Array | None:
        if self.critic is None:
            return None
        return self.critic.weights(critic[0], state.coins)

    def _criticised(
        self, critic: Critic, state: MatchState, key: jax.Array
    ) -> MatchState:
        """One step of the critic up the distance, every so many of the generator's."""

        def gain(params: Any) -> jax.Array:
            weights = critic.weights(params, state.coins)
            return -self._loss(state.generator.params, weights, state, key)

        def step(held: Any) -> Any:
            params, opt_state = held
            _, gradient = parallel.value_and_gradient(gain, params)
            return descend(self._critic_optimizer(critic), gradient, params, opt_state)

        turn = state.generator.steps % critic.every == 0
        made = jax.lax.cond(turn, step, lambda held: held, state.critic)
        return state._replace(critic=made)

    def _loss(
        self,
        generator: Any,
        weights: jax.Array | None,
        state: MatchState,
        key: jax.Array,
    ) -> jax.Array:
        """Squared distance of the classes' means, averaged over them; without bias.

        Each class counts the same, however rare: by the joint embedding, a class of one in
        a thousand would count for nothing.
        """
        k = self.config.data.num_classes
        each = self.settings.batch_size // k
        images, labels, is_padding = share_of_fakes(
            latent_sampler(self.config),
            generator,
            key,
            jnp.repeat(jnp.arange(k), each),
            self.num_devices,
        )
        rows, target = self.feature_map.rows(state.coins, images), state.embedding
        if weights is not None:
            rows, target = rows * jnp.sqrt(weights), target * jnp.sqrt(weights)
        member = membership(labels, is_padding, k)
        sums = parallel.total(member.T @ rows)
        squares = parallel.total(member.T @ jnp.sum(jnp.square(rows), axis=1))
        counts = jnp.full(k, float(each))
        distance = losses.unbiased_squared_distance(sums, squares, counts, target)
        if weights is not None:
            # What the noise adds is public, and no gain of a critic's.
            noise = self.mechanism.noise_std / jnp.asarray(self.expected_counts)[:, 0]
            distance = distance - jnp.square(noise) * jnp.sum(weights)
        return jnp.mean(distance)
