"""L_BCE: conv3* and FC* learn from noised and fake aggregates (lines 8, 13 and 14).

Real images have no part in this step but through DPAGG, so it costs nothing.
"""

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.methods.dpaf.phase2.gan import Gan, GanState, Metrics, Params, StepKeys


def logits(gan: Gan, head: Params, aggregates: jax.Array) -> jax.Array:
    """[A, 1] answers of the head to aggregates [A, F]: above 0 for real."""
    maps = gan.taps.part(aggregates, 'conv2')
    answers: jax.Array = gan.networks.head.apply(head, maps)
    return answers


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
            logits(gan, head, state.latest)[:, 0], jnp.ones_like(weight)
        )
        made = optax.sigmoid_binary_cross_entropy(
            logits(gan, head, fake)[:, 0], jnp.zeros_like(weight)
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
