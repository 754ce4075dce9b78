"""DP-CGAN: reals clipped and noised, fakes clipped beside them, of no record's label."""

import operator
from unittest import mock

import jax
import numpy as np
import optax
import pytest
import tiny
from adversaries import deal, moves, some_units, trained, unclipped
from scipy import stats

from dpaf_jax.audit.methods import adversarial as auditing
from dpaf_jax.audit.methods import dp_gan as audit
from dpaf_jax.audit.target import Scene
from dpaf_jax.methods.adversarial import networks
from dpaf_jax.methods.dp_gan import dp_cgan
from dpaf_jax.methods.dp_gan.dp_cgan import DpCgan
from dpaf_jax.privacy.clipping import clip_vector, clipped_gradient_sum
from dpaf_jax.privacy.grid import add
from dpaf_jax.privacy.keys import public_key, record_keys
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import prior_labels

CLIP = 0.02
SMALL = {'method': 'dp_cgan', 'dp_cgan__l2_clip_norm': CLIP}
COINS = np.arange(4, dtype=np.uint32)


def settings(**fields):
    return tiny.config(**{**SMALL, **fields})


def gan_of(number=1, make=DpCgan, **fields):
    config = settings(**fields)
    return make(config, tiny.plan(config), number)


class OwnLabels(DpCgan):
    """The planted fault: each record has a fake of its own label, clipped beside it."""

    def query(self, state, batch, key):
        reals, batch = super().query(state, batch, key), batch.without_padding()
        labels, keys = batch.labels[:, 0], record_keys(key, batch.index[:, 0])
        fakes = self.adversaries.paired_fakes(state.generator.params, labels, keys)
        sums = clipped_gradient_sum(
            self._of_one(0.0),
            state.discriminator,
            (fakes, labels),
            batch.is_padding_example[:, 0],
            l2_clip_norm=self.mechanism.l2_sensitivity,
            grid=self.mechanism.grid,
        )
        return add(reals, sums)


# --- the plan -------------------------------------------------------------------------


def test_the_plan_is_dp_sgd_at_the_clip_of_reals_alone():
    (m,) = dp_cgan.plan(settings(), 40).mechanisms
    assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (0.2, 8, CLIP)
    assert m.kind == 'sum of clipped gradients, one per singleton'
    ours, theirs = (
        tiny.plan(settings(privacy__guarantee=mode))
        for mode in ('certified', 'as_published')
    )
    assert ours == theirs and theirs.guarantee == CERTIFIED


# --- reals ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize('number', [1, 8])
def test_one_record_moves_the_sum_by_at_most_the_clip_bound(number):
    far = moves(gan_of(number), number)
    assert 0.9 * CLIP < far.max() <= CLIP


@pytest.mark.slow  # as for dp_gan, whose clip it has
def test_a_discriminator_that_does_not_clip_is_found_out():
    assert moves(unclipped(gan_of()), 1).max() > 2 * CLIP


def test_fakes_with_labels_of_records_are_found_out():
    far = moves(gan_of(make=OwnLabels), 1).max()
    assert 1.2 * CLIP < far <= 2 * CLIP


# --- whole steps ----------------------------------------------------------------------


def stepper(gan, number):
    """What a step releases of a batch: `batch_size` times what the optimiser is given."""
    devices = jax.local_devices()[:number]
    step = parallel.pmapped(gan.discriminator_step, devices)

    def stepped(state, batch, noise_std):
        noise_key = tiny.keys().noise('discriminator', 0)
        keys = noise_key, COINS, np.float32(noise_std)
        placed, *rest = parallel.replicate((state, *keys), devices)
        after, _ = step(placed, deal(batch, number), *rest)
        moved = tiny.vector(parallel.unreplicate(after).discriminator)
        return gan.mechanism.expected_batch_size * (
            tiny.vector(state.discriminator) - moved
        )

    return stepped


@pytest.fixture
def descent(monkeypatch):
    """Plain descent at rate 1."""
    monkeypatch.setattr(networks, 'make_optimizer', lambda *_: optax.sgd(1.0))


def test_fakes_move_with_no_record(descent):
    gan = gan_of()
    step, batch = stepper(gan, 1), some_units(gan)
    state = jax.device_get(jax.jit(gan.adversaries.init)(jax.random.key(0)))
    scene, whole = Scene(state, batch), step(state, batch, 1e-9)
    rests = [step(state, scene.without(p).batch, 1e-9) for p in scene.places]
    far = [np.linalg.norm(whole - rest) for rest in rests]
    assert 0.5 * CLIP < max(far) <= CLIP * 1.001  # parameters are float32


# Its length is traced, which test_dataflow.py cannot read.
@pytest.mark.parametrize('number', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_noise_comes_once_and_beside_it_the_clipped_fakes(number, descent):
    gan = gan_of(number, dp_cgan__fc_width=40)
    step, batch = stepper(gan, number), some_units(gan)
    batch.is_padding_example[:] = True
    state = jax.device_get(jax.jit(gan.adversaries.init)(jax.random.key(0)))
    fakes = step(state, batch, 1e-9)
    np.testing.assert_allclose(fakes, tiny.vector(by_one(gan, state)), atol=2e-5)
    noise = (step(state, batch, 1.3) - fakes) / 1.3
    square, n = np.sum(np.square(noise)), noise.size
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], n)
    assert n > 600 and low < square < high
    assert not low < square * 1.5**2 < high and not low < square / 1.5**2 < high


def by_one(gan, state):
    """`batch_size` fakes of prior labels, one by one: each gradient clipped, their sum."""
    sampler, number = gan.adversaries.sampler, gan.config.dp_cgan.batch_size

    @jax.jit
    def drawn(params):
        key_z, key_label = jax.random.split(public_key(COINS))
        labels = prior_labels(gan.config.data.prior, key_label, number)
        z = jax.random.normal(key_z, (number, sampler.z_dim))
        return sampler.generator.apply(params, z, labels), labels

    fakes, labels = jax.device_get(drawn(state.generator.params))

    @jax.jit
    def part(params, image, label):
        def loss(params):
            return gan._of_one(0.0)(params, (image, label))

        return clip_vector(jax.grad(loss)(params), CLIP)

    parts = [part(state.discriminator, *one) for one in zip(fakes, labels, strict=True)]
    assert number == 8 and len(set(labels.tolist())) > 1
    return jax.tree.map(lambda *leaves: sum(leaves), *parts)


# --- training and audit ---------------------------------------------------------------


@pytest.mark.slow
def test_a_whole_phase_trains_both_networks():
    start, end, metrics = trained(DpCgan, settings())
    assert set(metrics) == {'noisy_gradient_norm', 'loss_generator', 'fakes_rejected'}
    for name in ('discriminator', 'generator.params', 'generator.ema_params'):
        part = operator.attrgetter(name)
        same = jax.tree.map(np.array_equal, part(start), part(end))
        assert not all(jax.tree.leaves(same))


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_fakes_of_records_labels():
    def failures(kind):
        config = settings()
        plan = tiny.plan(config)
        with (
            mock.patch.object(auditing, 'STATES', 2),
            mock.patch.dict(audit.KINDS, {'dp_cgan': kind}),
        ):
            (target,) = audit.audit_targets(config, plan, (1,))
        return tiny.audit_failures(target, plan)

    assert not failures(DpCgan)
    assert 'sensitivity' in failures(OwnLabels)
