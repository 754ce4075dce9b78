"""The generator's losses and its update: post-processing of released values.

Three losses, and any sum of them: `single`, adversarial on single fakes by the
discriminator without aggregation (canonical, Algorithm 1, lines 15-17); `aggregate`,
adversarial on noisy aggregates; `match`, the unbiased squared distance to the released
aggregates.
"""

import jax
import jax.numpy as jnp
import optax

from dpaf_jax import losses, parallel
from dpaf_jax.gan import Gan, GanState, Metrics, Params, StepKeys
from dpaf_jax.optimizers import moving_average
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.rows import sin_maps


def generator_step(
    gan: Gan, state: GanState, keys: StepKeys, inner: jax.Array | int = 0
) -> tuple[GanState, Metrics]:
    """One update of the generator by the config's sum of losses: post-processing."""
    weights = gan.config.dpaf.generator
    key = jax.random.fold_in(public_key(keys.public), 2)
    key = jax.random.fold_in(key, inner)

    def loss(generator: Params) -> tuple[jax.Array, Metrics]:
        parts = {}
        if weights.loss_single:
            parts['loss_single'] = _single_loss(gan, state, generator, key)
        if weights.loss_aggregate:
            fake = gan.fake_aggregate(state, generator, keys, use=3 + inner)
            logits = gan.logits(state.params['head'], fake)
            parts['loss_aggregate'] = losses.binary_cross_entropy(logits, True)
        if weights.loss_match:
            parts['loss_match'] = _match_loss(gan, state, generator, key)
        weighted = [getattr(weights, name) * value for name, value in parts.items()]
        return jnp.sum(jnp.stack(weighted)), parts

    gradient, metrics = jax.grad(loss, has_aux=True)(state.generator)
    # The transpose of a sum over devices is a sum over devices: hence the mean.
    gradient = parallel.mean(gradient)
    updates, optimizer = gan.optimizer('generator').update(
        gradient, state.generator_optimizer, state.generator
    )
    generator = optax.apply_updates(state.generator, updates)
    steps = state.generator_steps + 1
    average = moving_average(state.average, generator, steps, weights.ema_decay)
    state = state._replace(
        generator=generator,
        average=average,
        generator_optimizer=optimizer,
        generator_steps=steps,
    )
    return state, metrics


def _single_loss(
    gan: Gan, state: GanState, generator: Params, key: jax.Array
) -> jax.Array:
    """L''_BCE: D without aggregation on single fakes (canonical)."""
    number = gan.config.dpaf.generator.batch_size
    key_z, key_label = jax.random.split(key)
    labels = gan.random_labels(key_label, number)
    images, labels, is_padding = gan.fakes(generator, key_z, labels)
    maps = sin_maps(gan.networks, state.params, images, labels)[1]
    logits = gan.networks.head.apply(state.params['head'], maps)[:, 0]
    each = optax.sigmoid_binary_cross_entropy(logits, jnp.ones_like(logits))
    return parallel.total(jnp.sum(jnp.where(is_padding, 0.0, each))) / number


def _targets(gan: Gan, state: GanState) -> tuple[jax.Array, jax.Array]:
    """[A, F] mean row per aggregate as far as released, and [A] whether it is."""
    known = state.releases > 0
    table = state.pooled / jnp.maximum(state.releases, 1)[:, None]
    if 'count' in gan.rows:
        # The noisy count came with the same vector; reals are at least one.
        count = gan.rows.part(table, 'count')
        table = table / jnp.maximum(count, 1 / gan.expected_counts)
    return table, known


def _match_loss(
    gan: Gan, state: GanState, generator: Params, key: jax.Array
) -> jax.Array:
    """Squared distance of fake and released class aggregates, without bias."""
    each = max(2, gan.config.dpaf.generator.batch_size // gan.num_aggregates)
    owner = jnp.repeat(jnp.arange(gan.num_aggregates), each)
    key_z, key_label = jax.random.split(key)
    labels = owner
    if not gan.class_pure:
        labels = gan.random_labels(key_label, each)
    images, labels, is_padding = gan.fakes(generator, key_z, labels)
    rows = gan.image_rows(state.params, images, labels)
    member = jax.nn.one_hot(gan.table_index(labels), gan.num_aggregates)
    member = jnp.where(is_padding[:, None], 0.0, member)
    sums = parallel.total(member.T @ rows)
    squares = parallel.total(member.T @ jnp.sum(jnp.square(rows), axis=1))
    targets, known = _targets(gan, state)
    counts = jnp.full(gan.num_aggregates, float(each))
    distance = losses.unbiased_squared_distance(sums, squares, counts, targets)
    scale = gan.num_aggregates * gan.rows.bound**2
    return jnp.sum(jnp.where(known, distance, 0.0)) / scale
