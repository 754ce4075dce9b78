"""Planted faults are caught by the audit; the honest mechanism passes the same audit.

Each fault replaces a function of the package itself, so these tests also show that the
audit runs the real code. The audit's coins are fixed: the chance of a false alarm, below
0.1 % for each audit, was taken once.
"""

import contextlib
import dataclasses
import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from planted import MOST, REPETITIONS, SEED, coin_failures, mechanism_failures

from dpaf_jax.audit import randomness, session, white_box
from dpaf_jax.audit.findings import run_checks
from dpaf_jax.audit.methods import dpaf
from dpaf_jax.audit.target import Draws, Trace
from dpaf_jax.audit.white_box import MechanismAudit
from dpaf_jax.methods.dpaf.draws import draw_records
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier
from dpaf_jax.methods.dpaf.phase1.published import PublishedClassifier
from dpaf_jax.methods.dpaf.phase2.aggregator import Aggregator
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.phase import GanPhase
from dpaf_jax.privacy import chacha, noise
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.noise import add_gaussian, noisy_total
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.runtime import parallel

PURE = {'dpaf__batches': 'class_pure', 'dpaf__batch_size': 2}


@pytest.fixture(autouse=True, scope='module')
def quickly():
    with (
        mock.patch.object(white_box, 'SAMPLES', 200_000),
        mock.patch.object(dpaf, 'STATES', 4),
        mock.patch.object(dpaf, 'GROUP_STATES', 4),
    ):
        yield


@functools.cache
def honest(name, devices=(1,), fields=(), kinds=MOST):
    return mechanism_failures(name, devices, kinds, **dict(fields))


# --- clipping and sensitivity ---------------------------------------------------------


def test_no_clip():
    looked = 'sensitivity', 'epsilon (Gaussian)'
    with mock.patch('dpaf_jax.privacy.clipping.clip_factor', lambda *_: 1.0):
        assert mechanism_failures('conv1', kinds=looked) == set(looked)
    assert not honest('conv1', kinds=looked)


def test_sums_that_are_not_finite_fail_each_check_that_reads_them():
    config = tiny.config()
    plan = tiny.plan(config)
    target = dpaf._target(dpaf._readable(config), plan, plan['conv1'], (1,))
    lost = dataclasses.replace(target, exact={1: lambda *_: np.full((1, 9), np.nan)})
    checks = MechanismAudit(lost, plan.delta, REPETITIONS, SEED).checks()
    findings = run_checks(checks)
    assert not any(finding.passed for finding in findings)
    assert 'not finite' in findings[0].detail


def test_a_sum_that_no_canary_moves_is_not_called_tested():
    config = tiny.config()
    plan = tiny.plan(config)
    target = dpaf._target(dpaf._readable(config), plan, plan['conv1'], (1,))

    def still(state, batch, keys):
        noise = np.random.default_rng(keys.ravel()).normal(size=(len(keys), 9))
        return plan['conv1'].noise_std * noise

    nothing = dataclasses.replace(
        target, exact={1: lambda *_: np.zeros((1, 9))}, release={1: still}
    )
    checks = MechanismAudit(nothing, plan.delta, REPETITIONS, SEED).checks()
    findings = {f.kind: f for f in run_checks(checks)}
    for kind in ('sensitivity', 'epsilon', 'epsilon (Gaussian)', 'epsilon (one run)'):
        assert findings[kind].passed and not findings[kind].has_power, kind
        assert 'canaries move the sum by' in findings[kind].detail
    assert findings['noise by coordinate'].has_power


@pytest.mark.slow
def test_a_gradient_through_the_unclipped_aggregate_of_the_batch():
    def query(self, params, units):
        printed = PublishedClassifier(self.networks, self.config, self.plan)
        return printed.query(params, units)

    fields = {'dpaf__classifier__private': 'conv1'}
    with mock.patch.object(Classifier, 'query', query):
        assert 'sensitivity' in mechanism_failures('conv1', **fields)
    assert not honest('conv1', fields=tuple(fields.items()))


def divided_by(counts_of):
    """DPAGG's sums, brought to their expected size by true counts."""
    query = Aggregator.query

    def wrong(self, params, units):
        count = parallel.total(counts_of(self, units))
        return query(self, params, units).rounded() * (
            self.schedule.expected_counts / jnp.maximum(count, 1)
        )

    return mock.patch.object(Aggregator, 'query', wrong)


@pytest.mark.slow
def test_division_by_the_true_size_of_the_batch():
    with divided_by(lambda _, units: jnp.sum(~units.is_padding_example)):
        assert 'sensitivity' in mechanism_failures('dpagg')
    assert not honest('dpagg')


@pytest.mark.slow
def test_division_by_the_true_sizes_of_the_classes():
    def class_sizes(_, units):
        is_there = (~units.is_padding_example[:, 0]).astype(jnp.float32)
        return (is_there @ jax.nn.one_hot(units.labels[:, 0], 3))[:, None]

    with divided_by(class_sizes):
        assert 'sensitivity' in mechanism_failures('dpagg', **tiny.ONE_SHOT)
    assert not honest('dpagg', fields=tuple(tiny.ONE_SHOT.items()))


# --- noise ------------------------------------------------------------------------------


def changed(change):
    """The noise of a release's coordinates, on whatever device, as `change` makes it."""
    make = noise._noise

    def wrong(sums, *args):
        made = make(sums, *args)
        if isinstance(made, ExactSum):
            parts = jax.tree.map(change, (made.high, made.low))
            return dataclasses.replace(made, high=parts[0], low=parts[1])
        return jax.tree.map(change, made)

    return mock.patch.object(noise, '_noise', wrong)


@pytest.mark.slow
def test_one_coordinate_without_noise():
    with changed(lambda x: x.at[..., 0].set(0)):
        caught = mechanism_failures('dpagg', **tiny.ONE_SHOT)
    assert 'noise by coordinate' in caught
    assert not honest('dpagg', fields=tuple(tiny.ONE_SHOT.items()))


@pytest.mark.slow
def test_the_same_noise_for_two_classes():
    with changed(lambda x: jnp.broadcast_to(x[:1], x.shape)):
        caught = mechanism_failures('dpagg', **tiny.ONE_SHOT)
    assert 'repeated noise' in caught


@pytest.mark.slow
def test_the_same_noise_on_every_device():
    blocks = chacha.blocks

    def wrong(key, counters):
        return blocks(key, counters - counters[0])

    with mock.patch.object(chacha, 'blocks', wrong):
        assert 'repeated noise' in mechanism_failures('dpagg', (1, 2))
        assert not mechanism_failures('dpagg', (1,))


@pytest.mark.parametrize('factor', [0.5, pytest.param(0.98, marks=pytest.mark.slow)])
def test_noise_of_another_level(factor):
    def wrong(sums, key, std):
        return noisy_total(sums, key, factor * std)

    with mock.patch('dpaf_jax.privacy.aggregation.noisy_total', wrong):
        caught = mechanism_failures('dpagg')
    assert 'noise level' in caught
    assert ('epsilon (Gaussian)' in caught) == (factor == 0.5)
    assert not honest('dpagg')


@pytest.mark.slow
def test_noise_on_each_device_before_the_sum():
    def wrong(sums, key_data, std, expected_count):
        own = chacha.derived(key_data, parallel.place()[0])
        noisy = add_gaussian(sums, own, std)
        return parallel.total(noisy) / expected_count

    with mock.patch('dpaf_jax.methods.dpaf.phase2.aggregator.dpagg', wrong):
        assert mechanism_failures('dpagg', (2,)) >= {'noise level'}
    assert not honest('dpagg', (2,))


@pytest.mark.slow
def test_different_noise_on_each_device_after_the_sum():
    def wrong(sums, key_data, std, expected_count):
        own = chacha.derived(key_data, parallel.place()[0])
        return add_gaussian(parallel.total(sums), own, std) / expected_count

    with mock.patch('dpaf_jax.methods.dpaf.phase2.aggregator.dpagg', wrong):
        assert mechanism_failures('dpagg', (2,)) >= {'noise level'}


@pytest.mark.slow
def test_a_device_that_leaves_out_its_share_of_the_noise():
    share = noise._noise

    def wrong(sums, key_data, noise_std, device=0, number=1):
        made = share(sums, key_data, noise_std, device, number)
        return jax.tree.map(lambda leaf: jnp.where(device == 0, 0, leaf), made)

    with mock.patch('dpaf_jax.privacy.noise._noise', wrong):
        assert mechanism_failures('dpagg', (2,)) >= {'noise level'}


@pytest.mark.slow
def test_noise_without_the_two_of_groups():
    def std(self):
        return self.noise_multiplier * self.l2_sensitivity / (1 + (self.num_groups > 1))

    fields = {'dpaf__classifier__unit': 'group'}
    with mock.patch.object(Mechanism, 'noise_std', property(std)):
        assert 'noise level' in mechanism_failures('conv1', **fields)
        assert not mechanism_failures('dpagg')  # which has no groups
    assert not honest('conv1', fields=tuple(fields.items()))


# --- coins ------------------------------------------------------------------------------


ALL = 'conv1', 'conv2', 'dpagg', 'fake'


@pytest.mark.parametrize(
    'purposes', [('dpagg',), pytest.param(ALL, marks=pytest.mark.slow)]
)
def test_honest_coins(purposes):
    assert not coin_failures(noise=purposes)


def changed_keys(kind, purpose=lambda p: p, step=lambda s: s):
    honest_keys = getattr(RunKeys, kind)
    return mock.patch.object(
        RunKeys, kind, lambda self, p, s: honest_keys(self, purpose(p), step(s))
    )


def test_one_noise_key_for_two_steps():
    with changed_keys('noise', step=lambda s: s // 2):
        caught = coin_failures(noise=('dpagg',))
    assert caught == {'noise keys', 'noise independence'}


@pytest.mark.slow
def test_one_noise_key_for_two_mechanisms():
    with changed_keys('noise', purpose=lambda p: 'any'):
        caught = coin_failures(noise=('conv1', 'conv2'))
    assert caught == {'noise keys', 'noise independence'}


def test_one_noise_key_for_reals_and_fakes():
    keys = GanPhase._keys

    def wrong(self, step):
        made = keys(self, step)
        return made._replace(fake_noise=made.real_noise)

    with mock.patch.object(GanPhase, '_keys', wrong):
        assert 'noise keys' in coin_failures()


@pytest.mark.slow
def test_fakes_that_ignore_their_own_key():
    fake_aggregates = Gan.fake_aggregates

    def wrong(self, state, generator, keys, use=0):
        keys = keys._replace(fake_noise=keys.real_noise)
        return fake_aggregates(self, state, generator, keys, use)

    with mock.patch.object(Gan, 'fake_aggregates', wrong):
        assert 'noise independence' in coin_failures(noise=('fake',))


@contextlib.contextmanager
def conv2_on_dpaggs_batch():
    """conv2* takes the first batch of its window once more."""

    def wrong(self, update):
        key = update * self._run.config.dpaf.asymmetry
        draw = draw_records(self._run, self._run.plan['dpagg'], key)
        return {'conv2': self._feed.deal_one(draw)}

    with mock.patch.object(GanPhase, '_update_draws', wrong):
        yield


@pytest.mark.parametrize(
    'step', ['same', pytest.param('window', marks=pytest.mark.slow)]
)
def test_one_draw_for_two_mechanisms(step):
    fault = changed_keys('rng', purpose=lambda p: 'any')
    # The same rate for both: else the rate alone gives it away.
    fields = {'dpaf__batch_size': 8, 'dpaf__epochs': 0.4}
    with fault if step == 'same' else conv2_on_dpaggs_batch():
        assert coin_failures(**fields) == {'inclusion'}
    assert not coin_failures(**fields)


def test_draws_that_never_change():
    with changed_keys('rng', step=lambda s: 0):
        assert 'inclusion' in coin_failures()


def test_draws_without_replacement():
    from dpaf_jax.privacy.sampling import shuffled_batches

    def shuffled(m, eligible, keys, step):
        return shuffled_batches(40, int(m.expected_batch_size), m.name, keys, step)

    with mock.patch('dpaf_jax.training.input_pipeline.poisson_draw', shuffled):
        assert 'inclusion' in coin_failures()


# --- whole audits of certified configs ----------------------------------------------------


CERTIFIED = {
    'singleton': {},
    'group': {'dpaf__classifier__unit': 'group', 'dpaf__conv2__gradient': 'group'},
    'cotangent': {'dpaf__conv2__gradient': 'cotangent'},
    'head random': {'dpaf__classifier__private': 'conv1'},
    'class-pure': PURE,
    'classes in turn': {**PURE, 'dpaf__classes_per_step': 1},
    'one-shot': tiny.ONE_SHOT,
}


@pytest.mark.slow
@pytest.mark.parametrize('mode', CERTIFIED)
def test_no_certified_config_is_flagged(mode):
    config = tiny.config(**CERTIFIED[mode])
    made = session.audit(config, plan=tiny.plan(config), devices=(1, 8), seed=SEED)
    assert not made.violations
    assert {f.mechanism for f in made.findings} >= {
        m.name for m in made.plan.mechanisms
    }


@pytest.mark.parametrize('turns', [[[0, 1]], [[0, 1], [2, 3]]])
def test_where_nobody_has_two_turns_no_two_steps_are_compared(turns):
    eligible = [np.array(turn) for turn in turns]
    draws = Draws(0.5, eligible, eligible, eligible, 1)
    trace = Trace({'one': draws}, {}, {}, {})
    findings = run_checks(randomness.checks(trace, {}))
    assert {finding.case for finding in findings} == {
        'all purposes',
        'rate',
        'twice in a draw',
        'sizes',
    }


def drawn(chosen, q, number=2000):
    """What is found of draws among so many records, by case."""
    everyone = [np.arange(number)] * len(chosen)
    groups = [np.zeros(len(c), int) for c in chosen]
    trace = Trace({'one': Draws(q, everyone, chosen, groups, 1)}, {}, {}, {})
    findings = run_checks(randomness.checks(trace, {}))
    return {f.case: f for f in findings if f.kind == 'inclusion'}


def poisson(rng, q, number=2000, steps=64):
    return [np.flatnonzero(rng.random(number) < q) for _ in range(steps)]


def failures(found):
    return {case for case, finding in found.items() if not finding.passed}


@pytest.mark.parametrize('q', [0.3, 0.05, 0.002])
def test_poisson_draws_pass_and_draws_of_one_size_do_not(q):
    rng = np.random.default_rng(SEED)
    assert not failures(drawn(poisson(rng, q), q))
    size = int(2000 * q)
    fixed = [rng.choice(2000, size, replace=False) for _ in range(64)]
    assert failures(drawn(fixed, q)) == {'sizes'}


def test_epochs_of_small_batches_are_found_by_their_size():
    """Hardly anybody would be drawn in two steps anyway."""
    rng = np.random.default_rng(SEED)
    epoch = rng.permutation(2000)[: 64 * 8].reshape(64, 8)
    found = drawn(list(epoch), 8 / 2000)
    assert failures(found) == {'sizes'} and not found['two steps'].has_power
    assert drawn(poisson(rng, 0.3), 0.3)['two steps'].has_power


def test_two_draws_can_have_one_size_by_chance():
    found = drawn([np.arange(600), np.arange(1400, 2000)], 0.3)
    assert found['sizes'].passed and not found['sizes'].has_power


def test_a_record_twice_in_one_draw():
    chosen = poisson(np.random.default_rng(SEED), 0.05)
    chosen[40] = np.append(chosen[40], chosen[40][0])
    assert failures(drawn(chosen, 0.05)) == {'twice in a draw'}
