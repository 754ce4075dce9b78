"""DPBA-WGAN as published (Algorithms 1 and 2): a critic step that certifies nothing.

Noise multiplies the distances and is added to the penalties, where it has no gradient;
nothing bounds an example's own.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.methods.adversarial.networks import AdversarialState
from dpaf_jax.methods.adversarial.wgan import Trio, distance, gradient_penalty
from dpaf_jax.methods.dpba_wgan.critic import DpbaWgan, three_keys, toss
from dpaf_jax.methods.dpba_wgan.plan import COST
from dpaf_jax.privacy.keys import RunKeys, own_coins, public_key
from dpaf_jax.privacy.sampling import Draw, shuffled_batches
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.phase import Metrics


class PublishedDpbaWgan(DpbaWgan):
    """The static part, where the paper's own critic step is another."""

    def draw(self, keys: RunKeys, eligible: np.ndarray, step: int) -> Draw:
        """A batch of a shuffled epoch."""
        size, there = self.settings.batch_size, len(eligible)
        if size > there:
            raise UserError(
                'config.dpba_wgan.batch_size',
                f'asks for {size} images a step: more than the model in turn has',
                'Lower it',
            )
        name = COST
        if self.settings.per_label:
            name = f'{COST}/{self.schedule.label(step)}'
        draw = shuffled_batches(there, size, name, keys, self.schedule.own_step(step))
        return dataclasses.replace(draw, indices=eligible[draw.indices].astype('i4'))

    def trios(self, state: AdversarialState, batch: ClipBatch, key: jax.Array) -> Trio:
        """This device's [U] records; 'a random number' mixes the whole batch."""
        trios = super().trios(state, batch, key)
        mix = jax.random.uniform(public_key(key))
        return trios._replace(mix=jnp.broadcast_to(mix, trios.mix.shape))

    def noisy_sum(
        self,
        state: AdversarialState,
        batch: ClipBatch,
        noise_key: jax.Array,
        key: jax.Array,
        noise_std: jax.Array,
    ) -> Any:
        """The gradient of the noisy cost as printed, summed over the batch.

        Algorithm 1, lines 6-12, with Algorithm 2's noise: for each example a coin picks
        the term that is disturbed, by a normal draw whose scale is uniform between
        sigma and noise_ratio * sigma. The distance is multiplied by it (its mean is 1,
        which is not in print: a mean of 0 would leave nothing to learn); to the clipped
        penalty it is added (line 10).
        """
        trios, wgan = self.trios(state, batch, key), self.settings
        coin, width, normal = three_keys(noise_key, batch)
        number = len(trios.label)
        first = own_coins(toss, coin)
        spread = own_coins(jax.random.uniform, width)
        noise = own_coins(jax.random.normal, normal)
        noise *= noise_std * (1 + (wgan.noise_ratio - 1) * spread)
        times = jnp.where(first, 1 + noise, 1.0)
        plus = jnp.where(first, 0.0, wgan.penalty_weight * noise)
        present = ~batch.is_padding_example[:, 0]

        def noisy_cost(params: Any) -> jax.Array:
            cost = jax.vmap(self.published_cost, (None, 0, 0))
            each = cost(params, trios, (times, jnp.ones(number))) + plus
            return jnp.sum(jnp.where(present, each, 0.0))

        return parallel.total(jax.grad(noisy_cost)(state.discriminator))

    def discriminator_step(
        self, state: AdversarialState, *args: Any
    ) -> tuple[AdversarialState, Metrics]:
        """Without what it tells of the gradient: nothing has noised that."""
        return super().discriminator_step(state, *args)[0], {}

    def generator_step(
        self, state: AdversarialState, key_data: jax.Array
    ) -> tuple[AdversarialState, Metrics]:
        """Likewise: its loss is by a critic that has seen records."""
        return super().generator_step(state, key_data)[0], {}

    def published_cost(
        self, params: Any, trio: Trio, times: tuple[Any, Any]
    ) -> jax.Array:
        """One example's distance and clipped, weighted penalty, each times a factor."""
        critic, wgan = self.adversaries.discriminator, self.settings
        steep = jnp.minimum(gradient_penalty(critic, params, trio), wgan.cost_clip)
        apart = distance(critic, params, trio)
        return times[0] * apart + times[1] * wgan.penalty_weight * steep
