"""PEARL: characteristic functions, weighed by a critic (Liew, Takahashi and Ueno 2022).

"PEARL: Data synthesis via private embeddings and adversarial reconstruction learning". The
features are the real and imaginary parts of a characteristic function at random, public
frequencies, drawn from one normal law. The generator is matched to their noisy means as
those of another law: a critic moves its variances, pixel by pixel, to where the two differ
most, and each frequency weighs as the ratio of the two densities says. The critic reads
released numbers alone. What is released, and why, is in `embedding/`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.config.methods import PearlConfig
from dpaf_jax.methods.embedding.fourier import check_fourier, fourier_features
from dpaf_jax.methods.embedding.matching import Matching
from dpaf_jax.methods.embedding.phase import MatchPhase
from dpaf_jax.methods.embedding.plan import one_release
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.run import Run


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: one Gaussian on all records; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit each other, or the budget.
    """
    check_fourier(config)
    return one_release(config, num_examples)


def matching(config: Config, plan: PrivacyPlan, num_devices: int) -> Matching:
    """The static part of a run on so many devices."""
    made = fourier_features(config)
    coins = jax.eval_shape(made.init, jax.random.key(0))
    critic = FrequencyCritic(config.pearl, coins.shape[0])
    return Matching(config, plan, num_devices, made, critic)


def train(run: Run) -> Any:
    """Releases the embedding, trains the generator; returns its parameters' average."""
    made = matching(run.config, run.plan, len(run.devices))
    return run.train(MatchPhase(run, made)).generator.ema_params


@dataclasses.dataclass(frozen=True)
class FrequencyCritic:
    """Importance weights of frequencies under a normal law of other variances.

    Attributes:
        settings: of the method.
        pixels: of an image, after it is reduced.
    """

    settings: PearlConfig
    pixels: int

    @property
    def every(self) -> int:
        """See `Critic`."""
        return self.settings.critic_every

    @property
    def learning_rate(self) -> float:
        """See `Critic`."""
        return self.settings.critic_learning_rate

    def init(self) -> jax.Array:
        """[pixels] relative changes of the precisions: none."""
        return jnp.zeros(self.pixels)

    def weights(self, params: jax.Array, coins: jax.Array) -> jax.Array:
        """The ratio of the densities, over its mean: once for a cosine, once for its sine.

        Args:
            params: [pixels] d: the precision at a pixel is 1 + d times that of the draw.
            coins: [pixels, F / 2] frequencies.
        """
        # In units of each frequency's own law, whose squares are 1 in the mean.
        squares = jnp.square(coins) / jnp.mean(jnp.square(coins), axis=0)
        ratio = jax.nn.softmax(-0.5 * params @ squares) * coins.shape[1]
        return jnp.concatenate([ratio, ratio])
