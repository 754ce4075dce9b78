"""L_BCE: conv3* and FC* learn from noised and fake aggregates (lines 8, 13 and 14).

Real images have no part in this step but through DPAGG, so it costs nothing.
"""

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.methods.dpaf.phase2.gan import Gan, GanState, Metrics, Params, StepKeys


def logits(
    gan: Gan, head: Params, maps: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """The head's answers: above 0 for real.

    Args:
        gan: the parts.
        head: parameters.
        maps: [B, p, p, m] of aggregates or of single images.
        segment_ids: [B] int32, the aggregate that each is, or would go to: its answer is
            the one that counts. With class-pure batches that is a discriminator for each
            class, with shared features.

    Returns:
        [B].
    """
    answers = gan.networks.head.apply(head, maps)
    own = jax.nn.one_hot(segment_ids, gan.schedule.num_aggregates)
    return jnp.sum(answers * own, axis=1)


def aggregate_logits(gan: Gan, head: Params, aggregates: jax.Array) -> jax.Array:
    """[A] answers of the head to all aggregates [A, F]."""
    maps = gan.taps.part(aggregates, 'conv2')
    return logits(gan, head, maps, jnp.arange(len(maps)))


def head_step(
    gan: Gan, state: GanState, active: jax.Array, keys: StepKeys
) -> tuple[GanState, Metrics]:
    """One step of the head on the latest aggregates, beside fake ones.

    Args:
        gan: the parts.
        state: with `latest`, DPAGG's outputs.
        active: [A] bool or 0 and 1: the aggregates that count in this step.
        keys: of the step.
    """
    fake = gan.fake_aggregates(state, state.generator, keys)
    weight = active / jnp.sum(active)

    def loss(head: Params) -> jax.Array:
        real = optax.sigmoid_binary_cross_entropy(
            aggregate_logits(gan, head, state.latest), jnp.ones_like(weight)
        )
        made = optax.sigmoid_binary_cross_entropy(
            aggregate_logits(gan, head, fake), jnp.zeros_like(weight)
        )
        return jnp.vdot(weight, real + made)

    value, gradient = jax.value_and_grad(loss)(state.params['head'])
    updates, optimizer = gan.optimizer('head').update(
        gradient, state.head_optimizer, state.params['head']
    )
    head = optax.apply_updates(state.params['head'], updates)
    state = state._replace(
        params={**state.params, 'head': head}, head_optimizer=optimizer
    )
    return state, {'loss_head': value}
