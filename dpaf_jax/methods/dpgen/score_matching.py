"""DPGEN's training: denoising score matching, one clipped gradient per image.

    loss of one image x with label y = mean over its `multiplicity` draws (sigma, z) of
        w(sigma) |D(x + sigma z, sigma, y) - x|^2,    w = 1 / sigma^2 + 1 / SIGMA_DATA^2

which is equation 7, weighted to be of one size at every level. The draws are averaged
inside the clip: however many they are, an image moves the sum by at most C (noise
multiplicity, Dockhorn et al. 2023). Levels, noises and dropped labels are fresh public
coins that the image's index and the step decide, independent of the data.

`as_published` runs the same steps on sanitised pairs, without labels, clip and noise.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.networks.images import to_float
from dpaf_jax.networks.score import SIGMA_DATA, UNLABELLED, noise_levels
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.keys import own_coins, record_keys
from dpaf_jax.privacy.noise import noisy_mean
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.dpgen import ScoreSampler, score_sampler
from dpaf_jax.release.samplers.published_dpgen import (
    is_published,
    unlabelled_sampler,
)
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import TrainState, averaged_step, make_optimizer

Params = Any


class Shots(NamedTuple):
    """Images with what they are disturbed by.

    Attributes:
        clean: [U, H, W, C] float32 in [-1, 1].
        sigma: [U, M] float32.
        noise: [U, M, H, W, C] float32; the noisy image is clean + sigma * noise.
        labels: [U, M] int32, `UNLABELLED` where dropped.
        is_padding_example: [U] bool.
    """

    clean: jax.Array
    sigma: jax.Array
    noise: jax.Array
    labels: jax.Array
    is_padding_example: jax.Array


@dataclasses.dataclass(frozen=True)
class ScoreMatching:
    """The static part of training; its methods are pure functions of arrays."""

    sampler: ScoreSampler
    config: Config
    plan: PrivacyPlan

    @property
    def mechanism(self) -> Mechanism:
        """The only way from an image into a parameter."""
        return self.plan['score']

    def _optimizer(self, steps: int) -> optax.GradientTransformation:
        dpgen = self.config.dpgen
        cosine = steps if dpgen.schedule == 'cosine' else 0
        return make_optimizer(dpgen.optimizer, dpgen.learning_rate, cosine)

    def init(self, key: jax.Array) -> TrainState:
        """Random parameters: public coins."""
        return self.start(self.sampler.init(key))

    def start(self, params: Params) -> TrainState:
        """The state before the first step, from given parameters."""
        return TrainState.start(params, self._optimizer(self.mechanism.steps))

    def shots(self, batch: ClipBatch, key_data: jax.Array) -> Shots:
        """Disturbs each image of a draw `multiplicity` times.

        By coins that its index and the step decide: who else is there moves none of them.

        Args:
            batch: singletons [U, 1].
            key_data: [4] uint32 of this step alone, equal on all devices.
        """
        dpgen = self.config.dpgen
        batch = batch.without_padding()
        clean = to_float(batch.images[:, 0])
        number = dpgen.multiplicity
        keys = jax.vmap(lambda key: jax.random.split(key, 3))(
            record_keys(key_data, batch.index[:, 0])
        )

        def draw_dropped(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.random.bernoulli(key, dpgen.label_dropout, shape)

        sigma = own_coins(self.draw_sigma, keys[:, 0], number)
        noise = own_coins(jax.random.normal, keys[:, 1], number, *clean.shape[1:])
        dropped = own_coins(draw_dropped, keys[:, 2], number)
        labels = jnp.where(dropped, UNLABELLED, batch.labels)
        return Shots(clean, sigma, noise, labels, batch.is_padding_example[:, 0])

    def draw_sigma(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Noise levels, each of the public ones with the same chance; float32."""
        levels = jnp.array(noise_levels(self.config), jnp.float32)
        return levels[jax.random.randint(key, shape, 0, len(levels))]

    def loss(self, params: Params, shots: Shots) -> jax.Array:
        """Of one image, [], or of each of a batch, [U]: M draws averaged, per pixel."""
        clean = shots.clean[..., None, :, :, :]
        spread = shots.sigma[..., None, None, None]
        noisy = clean + spread * shots.noise
        guess = self.sampler.network.apply(
            params,
            noisy.reshape(-1, *noisy.shape[-3:]),
            shots.sigma.ravel(),
            shots.labels.ravel(),
        )
        weight = 1 / spread**2 + 1 / SIGMA_DATA**2
        error = jnp.square(guess.reshape(noisy.shape) - clean)
        return jnp.mean(weight * error, axis=(-4, -3, -2, -1))

    def query(self, params: Params, shots: Shots) -> Any:
        """This device's pre-noise sum of clipped gradients.

        Sensitivity of the sum over microbatches and devices: `mechanism.l2_sensitivity`.
        """
        return clipped_gradient_sum(
            self.loss,
            params,
            shots,
            shots.is_padding_example,
            l2_clip_norm=self.mechanism.l2_clip_norm,
            grid=self.mechanism.grid,
        )

    def update(
        self, state: TrainState, sums: Any, key_data: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """One DP-SGD update from this device's sum; the divisor is public."""
        gradient = noisy_mean(sums, key_data, self.mechanism)
        new = self.descend(state, gradient, self.mechanism.steps)
        return new, {'noisy_gradient_norm': optax.tree.norm(gradient)}

    def descend(self, state: TrainState, gradient: Any, steps: int) -> TrainState:
        """The optimiser's step, of `steps` in all, and the moving average's."""
        optimizer, decay = self._optimizer(steps), self.config.dpgen.ema_decay
        return averaged_step(optimizer, gradient, state, decay)


def make_score_matching(config: Config, plan: PrivacyPlan) -> ScoreMatching:
    """Builds it for a config; raises UserError where the network does not fit."""
    make_sampler = unlabelled_sampler if is_published(config) else score_sampler
    return ScoreMatching(make_sampler(config), config, plan)
