"""What is promised before a run is what was measured, and a warning where N is too few."""

import dataclasses
import math
import statistics

import pytest
import tiny_runs

import dpaf_jax
from docs import figures
from dpaf_jax.config import from_config_dict
from dpaf_jax.pipeline.outlook import (
    FAIR,
    GOOD,
    MEASURED,
    OTHER_DPAF,
    ROUGH,
    outlook,
)
from dpaf_jax.runtime.errors import UserError


def planned(count, epsilon=1.0, classes=2, channels=1):
    config = tiny_runs.load_config('recommended', 'digits')
    config.data.num_classes, config.data.num_examples = classes, count
    config.data.channels = channels
    config.privacy.epsilon, config.privacy.delta = epsilon, 1e-5
    with tiny_runs.without_accountant():
        return dpaf_jax.plan(config)


@pytest.mark.parametrize('run', MEASURED, ids=lambda r: f'{r.data},{r.epsilon:g}')
def test_every_figure_is_one_of_the_table_of_results(run):
    rows = [
        row
        for row in figures.RESULTS
        if row['data'] == run.data
        and row['records'] == str(run.num_examples)
        and row['epsilon'] == f'{run.epsilon:g}'
        and row['classifier'] == 'cnn'
        and row['guarantee'] == 'certified'
        and row['config'].startswith('recommended.py')
        and row['state'] in (figures.NOW, '')
        and not {'image_size=64', 'image_size=128'} & set(row['overrides'].split('.'))
        and 'data.image_size=64' not in row['overrides']
        and 'data.image_size=128' not in row['overrides']
        and 'wide_resnet' not in row['overrides']
    ]
    # Of the settings of now, where they were measured.
    rows = figures.select(rows, state=figures.NOW) or rows
    mean = statistics.mean(float(row['accuracy']) for row in rows)
    assert run.accuracy == pytest.approx(mean, abs=0.0011)
    if run.ceiling:
        real = [
            float(row['accuracy'])
            for row in figures.RESULTS
            if row['method'] == 'real'
            and row['data'] == run.data
            and row['classifier'] == 'cnn'
        ]
        assert run.ceiling in real


def test_too_few_are_told_with_what_would_do():
    found = planned(100)
    assert found.strength < ROUGH
    assert found.verdict == (
        '100 pictures of 2 classes at ε = 1: TOO FEW. Expect noise. From 200 on images '
        'are rough at this ε, or from ε = 2 on with these.'
    )
    assert 'TOO FEW' in repr(found) and 'guarantee: certified' in repr(found)


def test_what_is_advised_is_the_next_band():
    assert 'enough for rough images; from 800 on they are fair.' in (
        planned(200).verdict
    )
    assert 'enough for rough' in planned(100, epsilon=2.0).verdict
    assert 'fair images' in planned(800).verdict
    assert 'From 40 on' in planned(39, epsilon=5.0).verdict
    # 3.34 would do: rounded down it would not.
    assert 'from ε = 3.4 on' in planned(60).verdict
    assert 'enough for rough' in planned(60, epsilon=3.4).verdict


def test_no_epsilon_is_advised_that_promises_hardly_anything():
    assert 'from ε = 10 on' in planned(20).verdict
    found = planned(18).verdict
    assert found.endswith('More are needed: a larger ε alone will not do.')


def test_the_page_has_the_same_bands():
    page = (tiny_runs.ROOT / 'docs/howto/owners_before.md').read_text()
    for row in (
        f'below {ROUGH} | noise',
        f'{ROUGH} to {FAIR} | rough',
        f'{FAIR} to {GOOD} | fair',
        f'above {GOOD} | good',
    ):
        assert f'| {row}' in page


def test_one_is_no_plural():
    assert planned(5000, classes=1).verdict.startswith('5000 pictures of 1 class at')
    assert planned(1, classes=1).verdict.startswith('1 picture of 1 class at')


@pytest.mark.parametrize(
    ('file', 'argument', 'method'),
    [
        ('gs_wgan', 'mnist', 'gs_wgan'),
        ('g_pate', 'digits', 'g_pate'),
        ('dp_merf', 'mnist', 'dp_merf'),
        ('mnist', 'printed', OTHER_DPAF),
        ('mnist', 'canonical', OTHER_DPAF),
        ('mnist', 'one_shot', OTHER_DPAF),
    ],
)
def test_the_curves_speak_for_no_other_settings(file, argument, method):
    typed = from_config_dict(tiny_runs.load_config(file, argument))
    found = outlook(typed, planned(60000, classes=10).privacy)
    assert not found.nearest and 'good' not in found.text
    assert found.verdict.endswith(
        f'. No forecast for {method}: docs/results.md has what was measured.'
    )


def test_a_table_has_rows():
    typed = from_config_dict(tiny_runs.load_config('credit', 'g_pate'))
    found = outlook(typed, planned(60000).privacy)
    assert found.verdict.startswith('60000 rows of 2 classes at ε = 1. No forecast')


@pytest.mark.parametrize(('count', 'few'), [(300, True), (1000, False)])
def test_too_few_are_too_few_for_every_method(count, few):
    """Ten classes at epsilon = 1: from 1000 on somebody has made more than noise."""
    config = from_config_dict(tiny_runs.load_config('dp_merf', 'mnist,1'))
    found = outlook(
        config, dataclasses.replace(planned(60000).privacy, num_examples=count)
    )
    assert ('TOO FEW all the same' in found.verdict) == few


@pytest.mark.parametrize(
    ('epsilon', 'group', 'told'),
    [
        (0.9998, '', 'One picture more or less makes any outcome at most 2.8 times as'),
        (
            9.9994,
            '(.)',
            'One group more or less makes any outcome at most 23 000 times',
        ),
    ],
)
def test_a_plan_says_what_its_epsilon_means(epsilon, group, told):
    config = from_config_dict(tiny_runs.load_config('recommended', 'digits'))
    config = dataclasses.replace(
        config, data=dataclasses.replace(config.data, group=group)
    )
    privacy = dataclasses.replace(planned(60000).privacy, epsilon=epsilon)
    found = outlook(config, privacy).text
    assert told in found and 'but for a chance of 1e-05.' in found
    assert ('weak by itself' in found) == (epsilon > 3)


def test_photographs_are_promised_less_than_grey_shapes():
    assert 'photographs' not in planned(60000).verdict
    assert planned(60000, channels=3).verdict.endswith(
        'photographs come out worse (CIFAR-10 0.51, where real images teach 0.66).'
    )


def test_more_pictures_or_epsilon_or_fewer_classes_never_promise_less():
    order = ['TOO FEW', 'rough', 'fair', 'good']

    def rank(**changed):
        verdict = planned(**({'count': 500} | changed)).verdict
        return next(i for i, word in enumerate(order) if word in verdict)

    assert rank() <= rank(count=5000) <= rank(count=60000)
    assert rank() <= rank(epsilon=10.0)
    assert rank(classes=10) <= rank(classes=2)


def test_a_run_of_ours_is_among_its_own_nearest():
    config = tiny_runs.load_config('recommended', 'mnist,1')
    typed = from_config_dict(config)
    privacy = planned(60000, classes=10).privacy
    found = outlook(typed, privacy)
    assert any(
        (run.data, run.num_examples, run.epsilon) == ('mnist', 60000, 1)
        for run in found.nearest
    )
    assert 'Training takes' in found.text and math.isfinite(found.strength)


def test_larger_images_than_were_measured_are_promised_less():
    def verdict(side):
        config = tiny_runs.load_config('recommended', 'folder:/a')
        config.data.update(image_size=side, num_classes=2, channels=1, class_names='')
        config.data.num_examples, config.privacy.delta = 9000, 1e-5
        with tiny_runs.without_accountant():
            return dpaf_jax.plan(config).verdict

    assert verdict(32).endswith('less and less.')
    assert verdict(128).endswith('known up to 32 x 32: expect less at 128 x 128.')


def test_a_public_network_takes_its_time():
    def seconds_an_image(file):
        config = tiny_runs.load_config(file, 'mnist')
        steps, batch = 1000, config.dpaf.generator.batch_size
        config.dpaf.generator_steps = steps
        with tiny_runs.without_accountant():
            return dpaf_jax.plan(config).seconds / (steps * batch)

    assert seconds_an_image('public') > 3 * seconds_an_image('recommended')


@pytest.mark.parametrize(
    ('side', 'fields', 'share'),
    [
        (32, {}, ''),  # half an hour at most
        (64, {}, 'In 1/6 of that: --config.dpaf.generator_steps=1000'),
        (64, {'generator_steps': 1000, 'generator.batch_size': 66}, ''),
        (64, {'classifier.private': 'none'}, ''),  # not measured so
    ],
)
def test_a_long_training_is_told_how_to_be_shorter(side, fields, share):
    config = tiny_runs.load_config('recommended', 'celeba64:gender')
    config.data.num_examples, config.data.image_size = 8038, side
    with config.unlocked():
        for name, value in fields.items():
            config.update_from_flattened_dict({f'dpaf.{name}': value})
    if fields.get('classifier.private') == 'none':
        config.dpaf.taps = 'count,fourier'
        config.dpaf.generator.warp = config.dpaf.generator.warp_of_few = 0.0
    with tiny_runs.without_accountant():
        text = dpaf_jax.plan(config).text
    assert share in text if share else 'of that:' not in text


def test_public_images_first_take_as_long_again():
    with tiny_runs.without_accountant():
        cold = dpaf_jax.plan(tiny_runs.load_config('recommended', 'digits'))
        warm = tiny_runs.load_config('recommended', 'digits')
        warm.dpaf.warm_start = 'npz:/public.npz'
        assert dpaf_jax.plan(warm).seconds == 2 * cold.seconds


def test_what_a_plan_takes_from_the_data_is_told():
    digits = tiny_runs.load_config('digits')
    digits.data.image_size = digits.data.num_examples = 0
    with tiny_runs.without_accountant():
        found = dpaf_jax.plan(digits)
    for line in ('--config.data.image_size=8', '--config.data.num_examples=1469'):
        assert line in found.decided and line in repr(found)


def test_without_n_records_are_counted_or_it_asks_for_it():
    digits = tiny_runs.load_config('digits')
    digits.data.num_examples = 0
    with tiny_runs.without_accountant():
        assert '1469 pictures of 10' in dpaf_jax.plan(digits).verdict
    digits.data.source = 'npz:/nowhere.npz'
    with pytest.raises(UserError, match='num_examples: is 0, and no records can be'):
        dpaf_jax.plan(digits)


def test_without_noise_nothing_is_promised():
    config = tiny_runs.load_config('recommended', 'mnist,inf')
    config.data.num_examples = 500
    found = dpaf_jax.plan(config)
    assert found.verdict.endswith('nothing is certified.') and not found.nearest
