"""From a score network to images: annealed Langevin dynamics, or its flow without noise.

Both go down the noise levels sigma_1 > ... > sigma_L that the network was trained at and
end with a denoising step. They see released parameters and public coins alone.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.networks.score import (
    UNLABELLED,
    ScoreNetwork,
    make_score_network,
    noise_levels,
)

MOST_CHURN = math.sqrt(2) - 1  # of sigma, before a step
Denoise = Callable[[jax.Array, jax.Array], jax.Array]  # (x, sigma) -> mean of the image


def annealed_langevin(
    denoise: Denoise,
    start: jax.Array,
    key: jax.Array,
    levels: Sequence[float],
    steps: int,
    step_size: float,
) -> jax.Array:
    """Langevin dynamics at each level in turn (DPGEN's equation 3; Song and Ermon 2020).

    x <- x + a score(x, sigma) + sqrt(2 a) z with a = step_size * sigma^2.

    Args:
        denoise: (x, sigma as a scalar) -> x + sigma^2 score(x, sigma).
        start: [B, ...] float32, of standard deviation levels[0].
        key: of the normal draws z.
        levels: falling.
        steps: at each level.
        step_size: relative; NCSNv2's step 6.2e-6 at its last level 0.01 is 0.062 here.

    Returns:
        [B, ...] samples, denoised at the last level.
    """
    sigmas = jnp.repeat(jnp.array(levels, jnp.float32), steps)

    def step(carry: Any, sigma: jax.Array) -> Any:
        x, key = carry
        key, now = jax.random.split(key)
        noise = jnp.sqrt(2 * step_size) * sigma * jax.random.normal(now, x.shape)
        return (x + step_size * (denoise(x, sigma) - x) + noise, key), None

    (x, _), _ = jax.lax.scan(step, (start, key), sigmas)
    return denoise(x, sigmas[-1])


def heun(
    denoise: Denoise,
    start: jax.Array,
    levels: Sequence[float],
    churn: float = 0.0,
    key: jax.Array | None = None,
) -> jax.Array:
    """The probability flow dx = -sigma score(x, sigma) dsigma by Heun's second-order steps.

    Karras et al. 2022, Algorithm 2, down to the last level and from there to 0 by one
    denoising step. Without churn it is their Algorithm 1, and deterministic: the same start
    gives the same image.

    Args:
        denoise: as for `annealed_langevin`.
        start: [B, ...] float32, of standard deviation levels[0].
        levels: falling.
        churn: S_churn; before a step fresh noise raises sigma by the share churn / levels.
        key: of that noise; only with churn.

    Returns:
        [B, ...] samples.
    """
    sigmas = jnp.array(levels, jnp.float32)
    share = min(churn / len(levels), MOST_CHURN)

    def stirred(x: jax.Array, now: jax.Array, rng: jax.Array) -> jax.Array:
        spread = now * math.sqrt((1 + share) ** 2 - 1)
        return x + spread * jax.random.normal(rng, x.shape)

    def step(x: jax.Array, given: Any) -> Any:
        now, then, *rng = given
        if rng:
            x, now = stirred(x, now, rng[0]), now * (1 + share)
        slope = (x - denoise(x, now)) / now
        guess = x + (then - now) * slope
        other = (guess - denoise(guess, then)) / then
        return x + (then - now) * (slope + other) / 2, None

    pairs: tuple[jax.Array, ...] = (sigmas[:-1], sigmas[1:])
    if churn:
        assert key is not None
        pairs += (jax.random.split(key, len(levels) - 1),)
    x, _ = jax.lax.scan(step, start, pairs)
    return denoise(x, sigmas[-1])


@dataclasses.dataclass(frozen=True)
class ScoreSampler:
    """Draws images of given classes; see `protocol.Sampler`."""

    network: ScoreNetwork
    config: Config

    def init(self, key: jax.Array) -> Any:
        """Random parameters, as training starts from."""
        image = jnp.zeros((1, *self.config.data.shape))
        return self.network.init(key, image, jnp.ones(1), jnp.zeros(1, jnp.int32))

    @property
    def levels(self) -> tuple[float, ...]:
        """Falling; those of training."""
        return noise_levels(self.config)

    def sample(self, params: Any, key: jax.Array, labels: jax.Array) -> jax.Array:
        """[B] int32 labels to [B, H, W, C] float32 images in [-1, 1]."""
        shape = (len(labels), *self.config.data.shape)
        first, rest = jax.random.split(key)
        start = self.levels[0] * jax.random.normal(first, shape)

        def denoise(x: jax.Array, sigma: jax.Array) -> jax.Array:
            # The mean of what lies in [-1, 1] lies there too; a guess may not.
            return jnp.clip(self._denoise(params, x, sigma, labels), -1, 1)

        return self.descent(denoise, start, rest)

    def descent(self, denoise: Denoise, start: jax.Array, key: jax.Array) -> jax.Array:
        """From noise [B, ...] of the first level to images."""
        dpgen = self.config.dpgen
        if dpgen.sampler == 'heun':
            return heun(denoise, start, self.levels)
        steps, size = dpgen.langevin_steps, dpgen.langevin_step_size
        return annealed_langevin(denoise, start, key, self.levels, steps, size)

    def _denoise(
        self, params: Any, x: jax.Array, sigma: jax.Array, labels: jax.Array
    ) -> jax.Array:
        """The network's guess; beyond the unlabelled one by the guidance (Ho, Salimans)."""
        sigmas, guidance = jnp.full(len(x), sigma), self.config.dpgen.guidance
        guess: jax.Array = self.network.apply(params, x, sigmas, labels)
        if guidance == 1:
            return guess
        nobody = jnp.full_like(labels, UNLABELLED)
        plain: jax.Array = self.network.apply(params, x, sigmas, nobody)
        return plain + guidance * (guess - plain)


def score_sampler(config: Config) -> ScoreSampler:
    """Of DPGEN."""
    return ScoreSampler(make_score_network(config), config)
