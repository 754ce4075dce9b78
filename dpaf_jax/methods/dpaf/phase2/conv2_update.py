"""conv2*: how it learns from private images (Algorithm 1, lines 9-12), and conv1 if asked.

conv1 may learn with it, as one clipped vector, or by a mechanism of its own, on another
sample, with noise of its own (`Gan.updates`). What follows holds for either.

With `singleton` or `group` units each unit is its own aggregate; with `cotangent` the
gradient of <v, SIN(f(x))> is taken at v = dL'/da of an aggregate a that is already
released. In both cases a unit's gradient depends on its own records and on released
values alone; it is clipped, summed and noised. One record moves the sum by at most C, or
2C where its group changes from one content to another.

What Algorithm 1 prints is published.py.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.methods.dpaf.networks import Params
from dpaf_jax.methods.dpaf.phase2.discriminator import logits
from dpaf_jax.methods.dpaf.phase2.gan import Gan, GanState, StepKeys, Use, coins
from dpaf_jax.networks import losses
from dpaf_jax.networks.images import to_float
from dpaf_jax.networks.instance_norm import simplified_instance_norm
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.noise import noisy_mean
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch, membership
from dpaf_jax.training.optimizers import descend


def _unit_loss(
    gan: Gan, trained: Params, params: Params, unit: dict[str, Any]
) -> jax.Array:
    """L'_BCE of one real unit's aggregate, by the answer for its first member's class.

    Args:
        gan: the parts.
        trained: parameters by which it is differentiated, of `params`.
        params: of the discriminator.
        unit: inputs of `_rows`, [M, ...]; weight [M], segment_ids [M]. Groups hold all
            classes, so they are of mixed batches, whose head has one answer.
    """
    aggregate = unit['weight'] @ _rows(gan, trained, params, unit['inputs'])
    answers = logits(gan, params['head'], aggregate[None], unit['segment_ids'][:1])
    return losses.real_cross_entropy(answers)


def _inputs(
    gan: Gan, trained: Params, params: Params, images: jax.Array, labels: jax.Array
) -> dict[str, jax.Array]:
    """What `_rows` makes rows of: all that stays the same while the trained parts learn."""
    if 'conv1' in trained:
        return {'images': images, 'labels': labels}
    planes = jax.nn.one_hot(labels, gan.networks.num_classes)
    return {
        'maps1': gan.networks.conv1.apply(params['conv1'], images, planes),
        'rows': gan.aggregator.rows(params, images, labels),
    }


def _rows(
    gan: Gan, trained: Params, params: Params, inputs: dict[str, jax.Array]
) -> jax.Array:
    """Rows [B, F] as the trained parameters make them."""
    if 'conv1' in trained:
        mixed = {**params, **trained}
        return gan.aggregator.rows(mixed, inputs['images'], inputs['labels'])
    maps = gan.networks.conv2.apply(trained['conv2'], inputs['maps1'])
    return gan.taps.replaced(inputs['rows'], 'conv2', simplified_instance_norm(maps))


def cotangents(gan: Gan, state: GanState) -> jax.Array:
    """[A, F]: dL'/da at each released aggregate a."""
    return cotangents_at(gan, state, state.latest, jnp.arange(len(state.latest)))


def cotangents_at(
    gan: Gan, state: GanState, rows: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """[B, F]: dL'/da at aggregates [B, F], each judged as its segment id says."""

    def loss(rows: jax.Array) -> jax.Array:
        answers = logits(gan, state.params['head'], rows, segment_ids)
        return len(rows) * losses.real_cross_entropy(answers)

    return jax.grad(loss)(rows)


def conv2_query(gan: Gan, state: GanState, batch: ClipBatch, name: str) -> Params:
    """This device's pre-noise sum of clipped gradients by the parts that learn together.

    Sensitivity of the sum over devices: `plan[name].l2_sensitivity`, C for singletons and
    cotangents, 2C for groups.

    Args:
        gan: static.
        state: released values.
        batch: [U, M, ...] this device's share.
        name: of the mechanism, one of `gan.updates`.
    """
    if gan.config.dpaf.conv2.gradient == 'cotangent':
        flat = flattened(batch)
        v = cotangents(gan, state)[gan.aggregator.segment_ids(flat.labels)]
        return pulled_back(gan, state, flat, v, name)
    return _of_units(gan, state, batch.without_padding(), name)


def flattened(batch: ClipBatch) -> ClipBatch:
    """Records [U, ...] of units [U, M, ...], with nothing where padded."""
    return ClipBatch(*(x.reshape(-1, *x.shape[2:]) for x in batch.without_padding()))


def pulled_back(
    gan: Gan, state: GanState, flat: ClipBatch, v: jax.Array, name: str
) -> Params:
    """Clipped gradients of <v, row>, summed over records.

    Args:
        gan: static.
        state: released values.
        flat: [U, ...] records.
        v: [U, F], each record's cotangent.
        name: of the mechanism.
    """
    trained = {part: state.params[part] for part in gan.updates[name]}
    images = to_float(flat.images)

    def pull(trained: Params, unit: dict[str, Any]) -> jax.Array:
        one = jax.tree.map(lambda leaf: leaf[None], unit['inputs'])
        return jnp.vdot(unit['v'], _rows(gan, trained, state.params, one)[0])

    inputs = _inputs(gan, trained, state.params, images, flat.labels)
    units, padding = {'inputs': inputs, 'v': v}, flat.is_padding_example
    return clipped_gradient_sum(pull, trained, units, padding, **_clip(gan, name))


def _of_units(gan: Gan, state: GanState, batch: ClipBatch, name: str) -> Params:
    """Clipped gradients of L'_BCE of units [U, M, ...], each its own aggregate, summed."""
    params, shape = state.params, batch.labels.shape
    trained = {part: params[part] for part in gan.updates[name]}
    images, labels = (x.reshape(-1, *x.shape[2:]) for x in (batch.images, batch.labels))
    inputs = _inputs(gan, trained, params, to_float(images), labels)
    real = 1.0 - batch.is_padding_example.astype(jnp.float32)
    units = {
        'inputs': jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), inputs),
        'weight': real / gan.plan[name].expected_unit_size,
        'segment_ids': gan.aggregator.segment_ids(batch.labels),
    }
    return clipped_gradient_sum(
        lambda trained, unit: _unit_loss(gan, trained, params, unit),
        trained,
        units,
        jnp.all(batch.is_padding_example, axis=1),
        **_clip(gan, name),
    )


def _clip(gan: Gan, name: str) -> dict[str, Any]:
    """How the mechanism's gradients are clipped."""
    m = gan.plan[name]
    return {
        'l2_clip_norm': m.l2_clip_norm,
        'grid': m.grid,
        'keep_fraction': gan.config.dpaf.keep_fraction,
        'signs': gan.config.dpaf.signs,
    }


def _num_units(gan: Gan, name: str) -> int:
    """How many units of fakes a step looks at: as many as of reals are expected."""
    if gan.config.dpaf.conv2.gradient == 'cotangent':
        return gan.schedule.num_aggregates
    return int(gan.plan[name].expected_units)


def _fake_gradient(
    gan: Gan, state: GanState, keys: StepKeys, name: str, number: int
) -> Params:
    """The fakes' part of L'_BCE: no private image in it, so neither clip nor noise.

    `number` is of their units, each an aggregate.
    """
    learns = {part: state.params[part] for part in gan.updates[name]}
    size = max(1, int(gan.plan[name].expected_batch_size) // number)
    units = jnp.arange(number * size) // size
    key_z, key_label = jax.random.split(coins(keys, Use[name.upper()]))
    labels = _fake_labels(gan, key_label, units)
    images, labels, is_padding = gan.fakes(state.generator.params, key_z, labels)
    inputs = _inputs(gan, learns, state.params, images, labels)

    def loss(trained: Params) -> jax.Array:
        # One batch, not `vmap` of `_unit_loss`: that would make a gradient of each unit.
        rows = _rows(gan, trained, state.params, inputs)
        if size == 1:
            return _loss_of_singletons(gan, state, rows, labels, is_padding) / number
        return _loss_of_aggregates(gan, state, rows, units, is_padding, size)

    return parallel.value_and_gradient(loss, learns)[1]


def _fake_labels(gan: Gan, key: jax.Array, units: jax.Array) -> jax.Array:
    """[B] int32 by the public prior; at cotangents of class aggregates a unit's class."""
    if gan.config.dpaf.conv2.gradient == 'cotangent' and gan.schedule.class_pure:
        return units
    return gan.random_labels(key, len(units))


def _loss_of_singletons(
    gan: Gan,
    state: GanState,
    rows: jax.Array,
    labels: jax.Array,
    is_padding: jax.Array,
) -> jax.Array:
    """Sum of L'_BCE over fakes that are each an aggregate, which is on one device."""
    each = _fake_errors(gan, state, rows, gan.aggregator.segment_ids(labels))
    return parallel.total(jnp.sum(jnp.where(is_padding, 0.0, each)))


def _loss_of_aggregates(
    gan: Gan,
    state: GanState,
    rows: jax.Array,
    units: jax.Array,
    is_padding: jax.Array,
    size: int,
) -> jax.Array:
    """L'_BCE of aggregates of `size` fakes, whose members are on any device.

    Args:
        gan: static.
        state: gives the head.
        rows: this device's share of the fakes' rows.
        units: [B] int32, the aggregate that each of all fakes is of.
        is_padding: of the share.
        size: of an aggregate.
    """
    number = len(units) // size
    mine, _ = parallel.my_share(units, gan.num_devices)
    sums = membership(mine, is_padding, number).T @ rows
    aggregates = parallel.total(sums) / size
    own = jnp.arange(number) if gan.schedule.class_pure else jnp.zeros(number, int)
    return jnp.mean(_fake_errors(gan, state, aggregates, own))


def _fake_errors(
    gan: Gan, state: GanState, aggregates: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """[B] BCE of the head's answers, where 0 is right."""
    answers = logits(gan, state.params['head'], aggregates, segment_ids)
    return optax.sigmoid_binary_cross_entropy(answers, jnp.zeros_like(answers))


def conv2_step(
    gan: Gan, state: GanState, batch: ClipBatch, keys: StepKeys, name: str
) -> GanState:
    """L'_BCE: one DP-SGD update of what learns here; `batch` and `name` as for the query."""
    sums = conv2_query(gan, state, batch, name)
    return descended(gan, state, sums, keys, name, _num_units(gan, name))


def descended(
    gan: Gan, state: GanState, sums: Params, keys: StepKeys, name: str, num_fakes: int
) -> GanState:
    """The state after noise and a step; earlier aggregates no longer fit it.

    Args:
        gan: static.
        state: released values.
        sums: this device's, before the noise.
        keys: of the step.
        name: of the mechanism.
        num_fakes: units of fakes, each an aggregate.
    """
    real = noisy_mean(sums, keys.update_noise[name], gan.plan[name])
    fake = _fake_gradient(gan, state, keys, name, num_fakes)
    gradient = jax.tree.map(jnp.add, real, fake)
    before = {part: state.params[part] for part in gan.updates[name]}
    trained, opt_state = descend(
        gan.optimizer(name), gradient, before, state.opt_states[name]
    )
    return state._replace(
        params={**state.params, **trained},
        opt_states={**state.opt_states, name: opt_state},
        pooled=jnp.zeros_like(state.pooled),
        num_pooled=jnp.zeros_like(state.num_pooled),
    )
