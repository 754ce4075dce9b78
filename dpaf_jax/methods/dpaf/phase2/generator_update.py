"""The generator's losses and its update: post-processing of released values.

Four losses, and any sum of them: `single`, adversarial on single fakes by the
discriminator without aggregation (as printed: Algorithm 1, lines 15-17); `aggregate`,
adversarial on noisy aggregates; `match`, the unbiased squared distance to the released
aggregates; beside it `smooth`, the fakes' total variation, against fakes that match the
aggregates' noise by being noise.
"""

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.methods.dpaf.networks import Params
from dpaf_jax.methods.dpaf.phase2.discriminator import aggregate_logits, logits
from dpaf_jax.methods.dpaf.phase2.gan import (
    Gan,
    GanState,
    StepKeys,
    Use,
    coins,
)
from dpaf_jax.methods.dpaf.phase2.whitening import Factors, whitened
from dpaf_jax.networks import losses
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import membership
from dpaf_jax.training.optimizers import averaged_step
from dpaf_jax.training.phase import Metrics

FOLDS = 4  # of a class's fakes, where the metric is whitened


def generator_steps(
    gan: Gan, state: GanState, keys: StepKeys
) -> tuple[GanState, Metrics]:
    """The schedule's number of updates behind one DPAGG step; the last one's metrics."""
    metrics: Metrics = {}
    for inner in range(gan.schedule.generator_steps):
        state, metrics = generator_step(gan, state, keys, inner)
    return state, metrics


def generator_step(
    gan: Gan,
    state: GanState,
    keys: StepKeys,
    inner: jax.Array | int = 0,
    metric: Factors | None = None,
) -> tuple[GanState, Metrics]:
    """One update of the generator by the config's sum of losses: post-processing.

    `metric` is that of `match`, from whitening.py; None: plain.
    """
    weights = gan.config.dpaf.generator
    key = coins(keys, Use.GENERATOR, inner)

    def loss(generator: Params) -> tuple[jax.Array, Metrics]:
        parts = {}
        if weights.loss_single:
            parts['loss_single'] = _single_loss(gan, state, generator, key)
        if weights.loss_aggregate:
            fake = gan.fake_aggregates(
                state, generator, keys, Use.ITS_AGGREGATES, inner
            )
            answers = aggregate_logits(gan, state.params['head'], fake)
            parts['loss_aggregate'] = losses.real_cross_entropy(answers)
        if weights.loss_match:
            parts |= _match_losses(gan, state, generator, key, metric)
        weighted = [getattr(weights, name) * value for name, value in parts.items()]
        return jnp.sum(jnp.stack(weighted)), parts

    (_, metrics), gradient = parallel.value_and_gradient(
        loss, state.generator.params, has_aux=True
    )
    optimizer, decay = gan.optimizer('generator'), weights.ema_decay
    stepped = averaged_step(optimizer, gradient, state.generator, decay)
    return state._replace(generator=stepped), metrics


def _single_loss(
    gan: Gan, state: GanState, generator: Params, key: jax.Array
) -> jax.Array:
    """L''_BCE: D without aggregation on single fakes, as printed."""
    number = gan.config.dpaf.generator.batch_size
    key_z, key_label = jax.random.split(key)
    labels = gan.random_labels(key_label, number)
    images, labels, is_padding = gan.fakes(generator, key_z, labels)
    rows = gan.aggregator.rows(state.params, images, labels)
    segment_ids = gan.aggregator.segment_ids(labels)
    answers = logits(gan, state.params['head'], rows, segment_ids)
    each = optax.sigmoid_binary_cross_entropy(answers, jnp.ones_like(answers))
    return parallel.total(jnp.sum(jnp.where(is_padding, 0.0, each))) / number


def _match_losses(
    gan: Gan, state: GanState, generator: Params, key: jax.Array, metric: Factors | None
) -> Metrics:
    """Squared distance of fake and released class aggregates, without bias; smoothness.

    A released mean lies off all means of images, by its noise. A share p of fakes that are
    noise themselves comes nearer to it in proportion to p and to the noise's length, so what
    speaks against them has that length too.
    """
    each = gan.schedule.fakes_per_aggregate(is_whitened=metric is not None)
    segment_ids = jnp.repeat(jnp.arange(gan.schedule.num_aggregates), each)
    key_z, key_label = jax.random.split(key)
    labels = segment_ids
    if not gan.schedule.class_pure:
        labels = gan.random_labels(key_label, each)
    images, labels, is_padding = gan.fakes(generator, key_z, labels)
    rows = gan.aggregator.rows(state.params, images, labels)
    if metric is not None:
        # In these units the noise has another length.
        distance = _whitened_distance(gan, state, rows, is_padding, each, metric)
        return {'loss_match': distance}
    parts = {'loss_match': _plain_distance(gan, state, rows, labels, is_padding, each)}
    if gan.config.dpaf.generator.loss_smooth:
        varied = losses.total_variation((images + 1) / 2)
        varied *= gan.noise_lengths(state)[gan.aggregator.segment_ids(labels)]
        varied = parallel.total(jnp.sum(jnp.where(is_padding, 0.0, varied)))
        parts['loss_smooth'] = varied / len(segment_ids)
    return parts


def _plain_distance(
    gan: Gan,
    state: GanState,
    rows: jax.Array,
    labels: jax.Array,
    is_padding: jax.Array,
    each: int,
) -> jax.Array:
    """Unbiased, in units of a row's squared bound; the mean over aggregates."""
    segment_ids = gan.aggregator.segment_ids(labels)
    member = membership(segment_ids, is_padding, gan.schedule.num_aggregates)
    sums = parallel.total(member.T @ rows)
    squares = parallel.total(member.T @ jnp.sum(jnp.square(rows), axis=1))
    targets, known = gan.targets(state)
    counts = jnp.full(gan.schedule.num_aggregates, float(each))
    distance = losses.unbiased_squared_distance(sums, squares, counts, targets)
    scale = gan.schedule.num_aggregates * gan.taps.bound**2
    return jnp.sum(jnp.where(known, distance, 0.0)) / scale


def _whitened_distance(
    gan: Gan,
    state: GanState,
    rows: jax.Array,
    is_padding: jax.Array,
    each: int,
    metric: Factors,
) -> jax.Array:
    """The same in units of the fakes' spread, per column.

    `FOLDS` parts of a class stand for its single fakes: only their means cross the metric.
    """
    folds = min(FOLDS, each)
    number = gan.schedule.num_aggregates * folds
    # Fakes come class by class: in turn they go to the class's folds.
    segment_ids = jnp.arange(gan.schedule.num_aggregates * each)
    segment_ids = segment_ids // each * folds + segment_ids % folds
    counts = jnp.bincount(segment_ids, length=number)[:, None]
    segment_ids, _ = parallel.my_share(segment_ids, gan.num_devices)
    sums = membership(segment_ids, is_padding, number).T @ rows
    means = parallel.total(sums) / counts
    targets, known = gan.targets(state)
    gaps = means.reshape(gan.schedule.num_aggregates, folds, -1) - targets[:, None]
    distance = losses.unbiased_squared_length(whitened(metric, gan.taps, gaps))
    return jnp.mean(jnp.where(known, distance, 0.0)) / gan.taps.size
