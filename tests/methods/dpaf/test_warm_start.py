"""DPAF's warm start: no private image in it, no coin shared with it, and all is told."""

import dataclasses
import json
import math
from typing import NamedTuple

import jax
import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax.audit.methods import dpaf as dpaf_audit
from dpaf_jax.config import public_dict
from dpaf_jax.config.public import from_public_dict
from dpaf_jax.methods import dpaf
from dpaf_jax.methods.dpaf import draws
from dpaf_jax.methods.dpaf.networks import make_networks, started
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier
from dpaf_jax.methods.dpaf.phase1.classifier_phase import ClassifierPhase
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.one_shot_phase import OneShotPhase
from dpaf_jax.methods.dpaf.train import algorithm
from dpaf_jax.methods.dpaf.warm_start import WithoutNoise, public_config, warm_start
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.release.card import model_card
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.run import Run
from dpaf_jax.verify.verification import verify

DISCRIMINATOR = {'conv1', 'conv2', 'head'}


def config(start='npz:/public.npz', classes=2, **fields):
    return tiny.config(
        dpaf__warm_start=start, dpaf__warm_start_classes=classes, **fields
    )


def run_of(folder, typed, num_public=30):
    """Its private images fail whoever looks at them."""
    run = tiny.run(folder, typed)
    hidden = dataclasses.replace(
        run.data, images=tiny.Untouchable(), labels=tiny.Untouchable()
    )
    of_public = dataclasses.replace(typed, data=typed.public_data)
    public = tiny.dataset(of_public, num_public, seed=5)
    return dataclasses.replace(run, data=hidden, public=public)


def started_from(run):
    return warm_start(run, lambda public, train: algorithm(public, train, {})[0])


def equal(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


# --- config ---------------------------------------------------------------------------


@pytest.mark.parametrize(('start', 'problem'), [
    ('private:0.1', "is 'private:0.1'. Name a source of public images, or none"),
    ('digits', "is 'digits', the private images"),
    ('emnist', "is 'emnist'. Name a source of public images"),
])  # fmt: skip
def test_what_is_not_public_or_not_known_is_refused(start, problem):
    for guarantee in ('certified', 'as_published'):
        with pytest.raises(UserError) as caught:
            config(start, privacy__guarantee=guarantee)
        assert f'config.dpaf.warm_start: {problem}' in str(caught.value)


def test_a_method_that_does_not_know_it_refuses_it():
    with pytest.raises(
        UserError, match=r"which feta does not start from.*Set it to ''"
    ):
        config(method='feta')


def test_the_public_images_have_classes_of_their_own():
    data = config(classes=7, data__class_prior=(0.5, 0.25, 0.25)).public_data
    assert (data.source, data.num_classes, data.class_prior) == (
        'npz:/public.npz',
        7,
        (),
    )


@pytest.mark.parametrize(
    'source, private, asked',
    [
        ('celeba:/p', 'hair', 'hair'),
        ('celeba:/p', '', 'gender'),  # the private images are no faces
        ('tfds:celeb_a', 'gender', 'gender'),
        ('ffhq:/p', 'hair', 'gender'),
        ('npz:/p.npz', 'hair', ''),
    ],
)
def test_public_faces_are_asked_for_an_attribute_that_they_have(source, private, asked):
    data = config(
        source, data__attribute=private, data__class_names='a/b/c'
    ).public_data
    assert (data.attribute, data.class_names) == (asked, '')


def test_a_phase_without_noise_counts_its_images_as_itself(tmp_path):
    fields = {**tiny.ONE_SHOT, 'dpaf__generator__whitenings': 1}
    run = tiny.run(tmp_path, tiny.config(**fields))
    phase = OneShotPhase(run, Gan(run.config, run.plan, 1), None)
    assert WithoutNoise(phase, run.plan).images == phase.images


def test_the_released_config_says_so_without_a_path():
    shown = public_dict(config('npz:/secret/x.npz'))
    assert shown['dpaf']['warm_start'] == 'npz' and 'secret' not in json.dumps(shown)


def test_releases_from_before_it_are_read_as_cold():
    fields = public_dict(config(''))
    for name in ('warm_start', 'warm_start_parts', 'warm_start_classes'):
        del fields['dpaf'][name]
    assert from_public_dict(fields).warm_start == ''


def test_the_plan_is_the_same():
    starts = '', 'npz:/public.npz'
    cold, warm = (dpaf.plan(config(start, **tiny.ONE_SHOT), 40) for start in starts)
    assert cold == warm
    cold, warm = (tiny.plan(config(start)) for start in starts)  # without a search
    assert cold == warm


def test_the_audit_shrinks_it_away():
    assert not dpaf_audit.shrink(config(), 64).dpaf.warm_start


def test_the_card_tells_of_public_data():
    fields = tiny.plan(config()).to_json()
    warm, cold = (model_card(config(s), fields) for s in ('npz:/public.npz', ''))
    assert '**Public data were used.**' in warm and '(source: `npz`)' in warm
    assert '**Public data were used.**' not in cold


# --- the public part ------------------------------------------------------------------


class PublicPart(NamedTuple):
    """What a warm start gives, and what it does.

    Attributes:
        run: whose part it is; its private images fail whoever looks at them.
        start: the parameters.
        coins: by fingerprint: (kind, purpose, step) of each key that is taken.
        phases: (name, what it charges, the epsilon of its plan) of each.
        drawn: (mechanism, number of images drawn from) of each draw.
    """

    run: Run
    start: dict
    coins: dict
    phases: list
    drawn: list


@pytest.fixture(scope='module')
def public_part(tmp_path_factory):
    each_step = {'dpaf__asymmetry': 1, 'dpaf__n_critic': 1}  # a window is one step
    run = run_of(tmp_path_factory.mktemp('both'), config(**each_step))
    coins, phases, drawn = {}, [], []
    train, draw = Run.train, draws.draw_records

    def noted_train(self, phase):
        phases.append((phase.name, dict(phase.charged(2)), self.plan.epsilon))
        return train(self, phase)

    def noted_draw(run, mechanism, *more):
        drawn.append((mechanism.name, len(run.data.images)))
        return draw(run, mechanism, *more)

    with pytest.MonkeyPatch.context() as patch:
        for kind in ('noise', 'rng', 'public'):
            made = getattr(RunKeys, kind)

            def noted(self, purpose, step, kind=kind, made=made):
                coins.setdefault(self.fingerprint, set()).add((kind, purpose, step))
                return made(self, purpose, step)

            patch.setattr(RunKeys, kind, noted)
        patch.setattr(Run, 'train', noted_train)
        for place in ('phase1.classifier_phase', 'phase2.phase', 'phase2.batch_phase'):
            patch.setattr(f'dpaf_jax.methods.dpaf.{place}.draw_records', noted_draw)
        start = started_from(run)
    return PublicPart(run, start, coins, phases, drawn)


def test_it_reads_no_private_image_and_gives_what_is_asked_for(public_part):
    assert public_part.start.keys() == DISCRIMINATOR | {'generator'}


@pytest.mark.slow
def test_the_generator_may_start_anew(tmp_path):
    typed = config(dpaf__warm_start_parts='discriminator')
    assert started_from(run_of(tmp_path / 'd', typed)).keys() == DISCRIMINATOR


def test_nothing_is_bounded_or_noised_there():
    typed = config()
    public = public_config(typed, 30)
    assert not public.warm_start and math.isinf(public.privacy.epsilon)
    for mechanism in dpaf.plan(public, 30).mechanisms:
        assert math.isinf(mechanism.l2_sensitivity) and not mechanism.noise_multiplier


def test_private_draws_and_noise_have_keys_that_the_public_part_has_not(public_part):
    """What the public part has made is released; it must tell nothing of later coins."""
    (fingerprint,) = public_part.coins
    assert fingerprint == public_part.run.keys.apart('warm start').fingerprint
    kinds = {kind for kind, *_ in public_part.coins[fingerprint]}
    assert kinds == {'noise', 'rng', 'public'}


def test_keys_apart_are_others():
    keys = tiny.keys()
    apart = keys.apart('warm start')
    assert not np.array_equal(keys.noise('dpagg', 0), apart.noise('dpagg', 0))
    assert apart == keys.apart('warm start') != keys.apart('another part')


def test_its_phases_have_names_of_their_own_and_charge_nothing(public_part):
    plan = public_part.run.plan
    nothing = {m.name: 0 for m in plan.mechanisms}
    names = [name for name, *_ in public_part.phases]
    assert names == ['warm_classifier', 'warm_gan']
    assert all(rest == [nothing, plan.epsilon] for _, *rest in public_part.phases)


def test_too_few_public_images_are_refused_by_name(tmp_path):
    run = run_of(tmp_path, config(), num_public=3)
    with pytest.raises(
        UserError, match=r'config\.dpaf\.warm_start: has 3 images, too few'
    ):
        started_from(run)


def test_a_run_that_lacks_its_public_images_does_not_start_cold(tmp_path):
    run = dataclasses.replace(run_of(tmp_path, config()), public=None)
    with pytest.raises(ValueError, match='no public images'):
        started_from(run)


# --- the private part -----------------------------------------------------------------


def another(run, seed):
    """Parameters of this run's shapes, as a warm start gives them."""
    gan = Gan(run.config, run.plan, 1)
    state = tiny.state(gan, seed)
    start = {name: state.params[name] for name in DISCRIMINATOR}
    return start | {'generator': state.generator.params}


def test_the_gan_begins_with_it_but_for_what_phase_1_has_learnt(tmp_path):
    run = tiny.run(tmp_path, tiny.config(**tiny.ONE_SHOT))
    gan, start = Gan(run.config, run.plan, 1), another(run, 1)
    learnt = {'conv1': another(run, 2)['conv1']}
    state = OneShotPhase(run, gan, learnt, start).init()
    assert equal(state.params['conv1'], learnt['conv1'])
    for name in ('conv2', 'head'):
        assert equal(state.params[name], start[name])
    assert equal(state.generator.params, start['generator'])
    assert equal(state.generator.ema_params, start['generator'])
    assert state.generator.steps == 0
    cold = OneShotPhase(run, gan, learnt).init()
    assert not equal(cold.params['conv2'], start['conv2'])
    assert not equal(cold.generator.params, start['generator'])


def test_phase_1_goes_on_with_its_conv1_and_a_new_head(tmp_path):
    run = tiny.run(tmp_path, tiny.config())
    classifier = Classifier(make_networks(run.config), run.config, run.plan)
    start = another(run, 1)
    params = ClassifierPhase(run, classifier, start).init().params
    cold = ClassifierPhase(run, classifier).init().params
    assert equal(params['conv1'], start['conv1'])
    assert equal(params['head'], cold['head']) and equal(params['conv2'], cold['conv2'])


def test_what_has_another_shape_stays_random_and_is_named(caplog):
    own = {
        'conv1': {'kernel': np.zeros(3), 'bias': np.zeros(2)},
        'fourier': np.zeros(1),
    }
    start = {'conv1': {'kernel': np.ones(3), 'bias': np.ones(4)}, 'head': np.ones(1)}
    with caplog.at_level('INFO'):
        made = started(own, start)
    assert made['conv1']['kernel'].tolist() == [1, 1, 1]
    assert made['conv1']['bias'].tolist() == [0, 0] and made['fourier'].tolist() == [0]
    assert made.keys() == own.keys()
    assert 'conv1/bias starts at random' in caplog.text


def test_it_is_the_same_algorithm_on_other_images(public_part):
    """The public part draws from the public images alone."""
    assert {name for name, _ in public_part.drawn} == {'conv1', 'conv2', 'dpagg'}
    assert {number for _, number in public_part.drawn} == {30}


@pytest.mark.parametrize(('source', 'told'), [
    ('npz:/no/such.npz', r'warm_start: names /no/such\.npz, which does not exist'),
    ('digits', r'warm_start_classes: is 2, but digits has 10 classes'),
])  # fmt: skip
def test_public_images_that_cannot_be_used_are_refused_by_their_own_field(
    tmp_path, source, told
):
    private = tiny_runs.write_npz(tmp_path / 'private.npz')
    made = tiny_runs.canonical(
        private, dpaf__warm_start=source, dpaf__warm_start_classes=2
    )
    with pytest.raises(UserError, match=r'^config\.dpaf\.' + told):
        Pipeline(made, tmp_path / 'run').run('prepare')


# --- whole runs -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['canonical', 'one_shot'])
def test_a_run_from_start_to_report_tells_of_it(tmp_path, kind):
    """Private images of two classes; public ones of three, larger."""
    source = tiny_runs.write_npz(tmp_path / 'private.npz')
    public = tiny_runs.write_npz(
        tmp_path / 'public.npz', side=12, num_classes=3, seed=9
    )
    make = {'canonical': tiny_runs.canonical, 'one_shot': tiny_runs.one_shot}[kind]
    made = make(source, dpaf__warm_start=public, dpaf__warm_start_classes=3)
    flags = tiny_runs.flags_of(made, tiny_runs.load_config('digits'))
    work = tmp_path / 'run'
    done = tiny_runs.call_main(
        '--config=configs/digits.py', f'--workdir={work}', *flags
    )
    assert done.code == 0, done.err
    report = json.loads((work / 'report.json').read_text())
    phases = {row['phase'] for row in report['history']}
    assert phases == (
        {'warm_classifier', 'warm_gan', 'classifier', 'gan'}
        if kind == 'canonical'
        else {'warm_gan', 'gan'}
    )
    assert 'Public data were used' in (work / 'report.html').read_text()
    assert verify(work / 'release').passed
