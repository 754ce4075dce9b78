"""Phase 2 of P3GM: decoder and encoder variance by DP-SGD on the ELBO.

    loss of one image x with label y = - E log p(x | z, y) + KL(N(f(x), s_y^2) || p(z | y))

with one draw z = f(x) + s_y n. The encoder's mean f is phase 1's projection and stays, and so
does p(z | y), the class's Gaussian; what learns are the decoder's weights and s [K, d'].

Guarantee: a record's gradient depends on that record, on coins that its index and the step
decide, and on parameters that noisy outputs have made. It is clipped to C as one vector, so
emptying the record moves the sum by at most C.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.methods.p3gm.moments import Encoder, Moments
from dpaf_jax.methods.p3gm.plan import DECODER
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.keys import own_coins, record_keys
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.p3gm import phased_sampler
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import TrainState, averaged_step, make_optimizer
from dpaf_jax.training.phase import Metrics

FIRST_LOG_STD = -1.0  # of the encoder's noise; all codes have a variance of about 1


class DecoderState(NamedTuple):
    """Everything that persists between steps; all of it is released or public.

    Attributes:
        moments: of phase 1; they stay as they are.
        vae: parameters {'decoder': weights, 'log_std': [K, d]}, their moving average, and
            what else their steps need.
    """

    moments: Moments
    vae: TrainState


class Shot(NamedTuple):
    """What one record's loss is of, or those of a batch, [U, ...].

    Attributes:
        image: [H, W, C] float32 in [0, 1].
        label: int32.
        code: [d'] the encoder's mean.
        noise: [d'] normal.
    """

    image: jax.Array
    label: jax.Array
    code: jax.Array
    noise: jax.Array


@dataclasses.dataclass(frozen=True)
class PhasedVae:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan

    @property
    def mechanism(self) -> Mechanism:
        """The one that phase 2 is."""
        return self.plan[DECODER]

    @property
    def encoder(self) -> Encoder:
        """Phase 1's."""
        return Encoder(self.config, self.plan)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        settings = self.config.p3gm
        return make_optimizer('adam', settings.learning_rate, settings.steps)

    def init(self, key: jax.Array, moments: Moments) -> DecoderState:
        """Random weights: public coins."""
        weights = phased_sampler(self.config).init(key)[DECODER]
        log_std = jnp.full_like(moments.means, FIRST_LOG_STD)
        params = {DECODER: weights, 'log_std': log_std}
        return DecoderState(moments, TrainState.start(params, self._optimizer))

    def loss(self, params: Any, factors: jax.Array, shot: Shot) -> jax.Array:
        """One record's negative ELBO, less what nothing that learns has a part in.

        Args:
            params: of `DecoderState.vae`.
            factors: [K, d', d'] of the mixture.
            shot: of the record.
        """
        log_std, factor = params['log_std'][shot.label], factors[shot.label]
        code = shot.code + jnp.exp(log_std) * shot.noise
        decoder = phased_sampler(self.config).decoder
        logits = decoder.apply(params[DECODER], code[None], shot.label[None])
        pixels = optax.sigmoid_binary_cross_entropy(logits[0], shot.image)
        # The diagonal of (F F^T)^-1, where the columns of F are orthogonal.
        variances = jnp.sum(jnp.square(factor), axis=0)
        precision = jnp.sum(jnp.square(factor / variances), axis=1)
        divergence = precision * jnp.exp(2 * log_std) / 2 - log_std
        return jnp.sum(pixels) + jnp.sum(divergence)

    def query(self, state: DecoderState, batch: ClipBatch, key: jax.Array) -> Any:
        """This device's pre-noise sum of clipped gradients.

        Sensitivity of the sum over devices: `l2_clip_norm`, see the module.

        Args:
            state: gives all parameters.
            batch: singletons.
            key: [4] uint32 of the step's public coins, equal on all devices.
        """
        batch = batch.without_padding()
        images, own = batch.images[:, 0], record_keys(key, batch.index[:, 0])
        codes = self.encoder.codes(state.moments, images)
        noise = own_coins(jax.random.normal, own, codes.shape[1])
        pixels = (to_float(images) + 1) / 2
        factors = state.moments.factors
        return clipped_gradient_sum(
            lambda params, shot: self.loss(params, factors, shot),
            state.vae.params,
            Shot(pixels, batch.labels[:, 0], codes, noise),
            batch.is_padding_example[:, 0],
            l2_clip_norm=self.mechanism.l2_clip_norm,
            grid=self.mechanism.grid,
        )

    def release(
        self, state: DecoderState, batch: ClipBatch, noise_key: jax.Array, key: Any
    ) -> Any:
        """The noisy sum of a step, in the shape of the parameters."""
        sums = self.query(state, batch, key)
        return noisy_total(sums, noise_key, self.mechanism.noise_std)

    def step(
        self, state: DecoderState, batch: ClipBatch, noise_key: jax.Array, key: Any
    ) -> tuple[DecoderState, Metrics]:
        """One DP-SGD update; the divisor is public.

        Args:
            state: before.
            batch: this device's share of a Poisson draw.
            noise_key: [8] uint32 of this step alone.
            key: [4] uint32 of public coins.
        """
        noisy = self.release(state, batch, noise_key, key)
        size = self.mechanism.expected_batch_size
        gradient = jax.tree.map(lambda g: g / size, noisy)
        decay = self.config.p3gm.ema_decay
        stepped = averaged_step(self._optimizer, gradient, state.vae, decay)
        norm = optax.tree.norm(gradient)
        return state._replace(vae=stepped), {'noisy_gradient_norm': norm}
