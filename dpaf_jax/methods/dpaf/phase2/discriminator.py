"""L_BCE: conv3* and FC* learn from noised and fake aggregates (lines 8, 11 and 14).

Real images have no part in these steps but through DPAGG's outputs, of which as many may
be read as often as one likes: they cost nothing.
"""

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.methods.dpaf.networks import Params
from dpaf_jax.methods.dpaf.phase2.gan import (
    Gan,
    GanState,
    StepKeys,
    Use,
)
from dpaf_jax.training.optimizers import descend
from dpaf_jax.training.phase import Metrics


def logits(
    gan: Gan, head: Params, rows: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """The head's answers: above 0 for real.

    Args:
        gan: the parts.
        head: parameters.
        rows: [B, F], aggregates or of single images. conv3* reads the maps behind conv2*,
            FC* its answer and every other tap but the count.
        segment_ids: [B] int32, the aggregate that each is, or would go to: its answer is
            the one that counts. With class-pure batches that is a discriminator for each
            class, with shared features.

    Returns:
        [B].
    """
    maps = gan.taps.part(rows, 'conv2')
    answers = gan.networks.head.apply(head, maps, gan.taps.beside_conv2(rows))
    own = jax.nn.one_hot(segment_ids, gan.schedule.num_aggregates)
    return jnp.sum(answers * own, axis=1)


def aggregate_logits(gan: Gan, head: Params, aggregates: jax.Array) -> jax.Array:
    """[..., A] answers of the head to aggregates [..., A, F]."""
    *shape, size = aggregates.shape
    rows = aggregates.reshape(-1, size)
    segment_ids = jnp.arange(len(rows)) % shape[-1]
    return logits(gan, head, rows, segment_ids).reshape(shape)


def head_steps(gan: Gan, state: GanState, keys: StepKeys) -> tuple[GanState, Metrics]:
    """The config's number of steps behind one release; the last one's metrics."""
    metrics: Metrics = {}
    for inner in range(gan.config.dpaf.head.steps):
        state, metrics = head_step(gan, state, keys, inner)
    return state, metrics


def head_step(
    gan: Gan, state: GanState, keys: StepKeys, inner: int = 0
) -> tuple[GanState, Metrics]:
    """One step of the head on the aggregates that it remembers, beside fake ones.

    Args:
        gan: the parts.
        state: with DPAGG's outputs.
        keys: of the DPAGG step.
        inner: of the head's steps; each has coins of its own.
    """
    fake = gan.fake_aggregates(state, state.generator.params, keys, Use.HEAD, inner)
    state = state._replace(fake=gan.remembered(state, state.fake, fake))
    known = jnp.arange(len(state.real))[:, None] < state.num_pooled
    weight = known / jnp.maximum(1, jnp.sum(known))

    def loss(head: Params) -> jax.Array:
        each = [_loss(gan, head, state.real, True), _loss(gan, head, state.fake, False)]
        return jnp.sum(weight * sum(each))

    value, gradient = jax.value_and_grad(loss)(state.params['head'])
    optimizer, opt_state = gan.optimizer('head'), state.head_opt_state
    head, opt_state = descend(optimizer, gradient, state.params['head'], opt_state)
    params = {**state.params, 'head': head}
    state = state._replace(params=params, head_opt_state=opt_state)
    return state, {'loss_head': value}


def _loss(gan: Gan, head: Params, aggregates: jax.Array, is_real: bool) -> jax.Array:
    """[R, A] BCE of the answers to aggregates [R, A, F], with the config's penalty.

    The penalty is half the squared gradient of an answer by its aggregate, in units of a
    row's bound: R1 and R2 of Mescheder et al. 2018.
    """

    def error(answers: jax.Array) -> jax.Array:
        truth = jnp.full_like(answers, float(is_real))
        return optax.sigmoid_binary_cross_entropy(answers, truth)

    weight = gan.config.dpaf.head.penalty
    if not weight:
        return error(aggregate_logits(gan, head, aggregates))
    answers, pull = jax.vjp(lambda a: aggregate_logits(gan, head, a), aggregates)
    (slope,) = pull(jnp.ones_like(answers))
    steep = jnp.sum(jnp.square(gan.taps.bound * slope), axis=-1)
    return error(answers) + weight * steep / 2
