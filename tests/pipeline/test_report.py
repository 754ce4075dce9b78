"""What a run's report says of the run: figures, curves, where and how it was made."""

import json
import math
import re

import numpy as np
import pytest
from report_cases import (
    ACCURACY,
    ATTACKED,
    CONFIG,
    CONSISTENT,
    ENVIRONMENT,
    HISTORY,
    MECHANISM,
    PRIVACY,
    declaring,
    written,
)

from dpaf_jax.evaluation.outcome import BENCH_MEAN
from dpaf_jax.pipeline import figures, report, summary
from dpaf_jax.training.workdir import Workdir


def test_a_reader_is_told_that_times_are_not_covered(tmp_path):
    _, page, html = written(tmp_path)
    assert 'depend on real data: not covered by ε' in page.text
    assert 'private by construction' not in html


def test_json_has_the_promised_keys_and_is_what_is_returned(tmp_path):
    made, _, _ = written(tmp_path)
    read = json.loads((tmp_path / 'report.json').read_text())
    assert read == made
    assert read['accuracy']['synthetic']['cnn'] == ACCURACY['synthetic']['cnn']
    assert read['wall_seconds'] == {'train': 250.0, 'evaluate': 30.5}
    assert read['privacy'] == PRIVACY
    assert read['history'] == HISTORY
    assert read['method'] == 'dpaf' and read['environment'] and read['config']
    assert 'not covered by ε' in read['accuracy_note']


def test_json_is_strict_even_with_infinities_and_arrays(tmp_path):
    privacy = {**PRIVACY, 'epsilon': math.inf, 'guarantee': 'none (no noise)'}
    history = [{'phase': 'gan', 'step': np.int64(1), 'loss': np.float32(math.nan)}]
    written(tmp_path, privacy=privacy, history=history)

    def refuse(constant):
        raise AssertionError(constant)

    text = (tmp_path / 'report.json').read_text()
    read = json.loads(text, parse_constant=refuse)
    assert float(read['privacy']['epsilon']) == math.inf
    assert read['history'] == [{'phase': 'gan', 'step': 1, 'loss': 'nan'}]


def test_page_is_whole_and_of_one_piece(tmp_path):
    _, page, html = written(tmp_path)
    assert page.open == []
    assert 'script' not in page.tags and 'link' not in page.tags
    assert all(link.startswith('data:') for link in page.links)
    assert not re.search(r'url\(|@import|https?:', html)
    assert 'prefers-color-scheme: dark' in html
    assert 'var(--series)' in html and len(html) < 1e5


def test_real_test_figures_stand_under_their_warning(tmp_path):
    _, page, _ = written(tmp_path)
    warning = page.text.index('Measured on real test data: not covered by ε')
    assert warning < page.text.index('0.710 ± 0.014') < page.text.index('0.700, 0.720')


def test_one_seed_has_no_deviation(tmp_path):
    _, page, html = written(tmp_path)
    assert '± 0.000' not in html
    assert 'Logistic regressionsynthetic0.5000.500' in re.sub(
        r'\s*\n\s*', '', page.text
    )


def words_of(html):
    return ' '.join(re.sub('<[^>]*>', ' ', html).split())


def test_figures_stand_between_floor_and_ceiling_also_by_class(tmp_path):
    cnn = ACCURACY['synthetic']['cnn'] | {'per_class': [0.625, 0.875]}
    accuracy = {'synthetic': {'cnn': cnn}}
    ceiling = {'cnn': {'mean': 0.93, 'std': 0.0, 'values': [0.93]}}
    made, _, html = written(tmp_path, accuracy=accuracy, floor=0.4321, ceiling=ceiling)
    text = words_of(html)
    assert 'Small CNN real images (ceiling) 0.930' in text
    assert 'Always the largest class (floor) nothing 0.432' in text
    assert 'Accuracy by class 0 1 Small CNN 0.62 0.88' in text
    assert 'not asked for' not in text
    assert (made['floor'], made['ceiling']) == (0.4321, ceiling)
    _, page, _ = written(tmp_path, floor=0.4)
    assert 'ceiling was not asked for: evaluation.train_on_real=True' in page.text


def test_a_reader_learns_when_by_what_and_on_which_data(tmp_path):
    config = declaring(source='folder', image_size=48, channels=3)
    made, page, _ = written(tmp_path, config=config)
    assert f'Report of {made["when"]}, by dpaf_jax 9.8.7, commit abcdef' in page.text
    assert '48 × 48 pixels, colour' in page.text and 'folder' in page.text


def test_a_histogram_of_classes_is_not_called_equal_shares(tmp_path):
    _, page, _ = written(tmp_path, config=declaring(noisy_prior=0.05))
    assert 'by a noisy histogram, which ε covers' in page.text
    assert 'taken to be equal' not in page.text


def test_print_and_narrow_screens_have_rules_of_their_own(tmp_path):
    _, _, html = written(tmp_path)
    assert '@media print' in html and '.detail { display: none; }' in html
    assert 'max-width: 48rem' in html
    assert 'screen and (prefers-color-scheme: dark)' in html  # paper is white


def test_everything_that_comes_from_outside_is_escaped(tmp_path):
    evil = '<script>alert("x")</script>&'
    _, page, html = written(
        tmp_path,
        config={
            **declaring(source=evil),
            'method': evil,
            evil: {'warm_start': evil},
        },
        privacy={
            **PRIVACY,
            'neighbors': evil,
            'accountant': evil,
            'mechanisms': [{**MECHANISM, 'name': evil, 'kind': evil}],
        },
        checked={
            'verify': CONSISTENT | {'verdict': evil, 'when': evil},
            'audit': None,
            'attacks': {evil: ATTACKED | {'verdict': evil, 'when': evil}},
        },
        accuracy={evil: {evil: ACCURACY['synthetic']['cnn']}},
        history=[{'phase': evil, 'step': 1, 'epsilon_spent': 1.0, evil: 1.0}],
        wall_seconds={evil: 1.0},
        environment=ENVIRONMENT | {'commit': evil, evil: evil},
    )
    assert 'script' not in page.tags
    assert '<script' not in html
    assert page.text.count(evil) >= 13


def test_a_run_that_was_not_evaluated_still_has_a_report(tmp_path):
    _, page, _ = written(
        tmp_path, accuracy={}, history=[], wall_seconds={}, with_images=False
    )
    assert 'Not evaluated' in page.text
    assert 'img' not in page.tags and 'svg' not in page.tags


def test_values_that_are_missing_do_not_break_curves_or_tables(tmp_path):
    history = [
        {'phase': 'gan', 'step': 1, 'epsilon_spent': None, 'loss': None},
        {'phase': 'gan', 'step': 2, 'epsilon_spent': 0.5, 'loss': math.nan},
        {'phase': 'gan', 'step': 3, 'epsilon_spent': 1.0, 'loss': 2.0},
    ]
    mechanism = {**MECHANISM, 'l2_sensitivity': None, 'num_groups': 1}
    _, page, _ = written(
        tmp_path, history=history, privacy={**PRIVACY, 'mechanisms': [mechanism]}
    )
    assert page.tags.count('svg') == 2


def test_a_curve_without_a_point_is_a_sentence(tmp_path):
    history = [{'phase': 'gan', 'step': 1, '<loss>': math.nan}]
    _, page, _ = written(tmp_path, history=history)
    assert 'gan: <loss>: nothing was recorded.' in page.text
    assert 'svg' not in page.tags


def test_environment_names_versions_and_hardware():
    found = report.environment()
    for name in ('python', 'jax', 'jaxlib', 'flax', 'optax', 'dp-accounting'):
        assert re.match(r'\d+\.\d+', found[name]), name
    assert found['backend'] == 'cpu' and found['devices'] >= 1
    assert found['dpaf_jax'] and found['device_kind'] and found['cpu_count']
    json.dumps(found)


def test_fidelity_stands_in_the_report_where_it_was_measured(tmp_path):
    made, _, html = written(
        tmp_path,
        fidelity={'fd_efficientnet_lite0': 67.11, 'recall': 0.73},
        floor=0.114,
    )
    assert made['fidelity']['recall'] == 0.73
    assert made['floor'] == 0.114
    assert '67.11' in html and 'not the FID' in html and '0.114' in html
    assert 'fd_efficientnet_lite0' not in written(tmp_path)[2]
    assert 'Fréchet distance, EfficientNet-Lite0 (not FID)' in html
    assert 'rests on' not in html


def test_fidelity_has_names_for_people_and_says_on_how_few_images_it_rests(tmp_path):
    found = {'is_std': 0.05, 'num_real': 328, 'num_synthetic': 10_000}
    _, page, _ = written(tmp_path, fidelity=found)
    assert not [name for name in found if name in page.text]
    assert 'Real test images compared' in page.text
    assert 'rests on 328 real images, fewer than the 1280 features' in page.text
    _, page, _ = written(tmp_path, fidelity=found | {'num_real': 1280})
    assert 'rests on' not in page.text


def test_fid_stands_in_the_report_under_its_name(tmp_path):
    many = {'num_real': 10_000, 'num_synthetic': 10_000}
    found = {'fid': 31.25, 'inception_score': 2.5, 'inception_score_std': 0.5, **many}
    _, page, _ = written(tmp_path, fidelity=found)
    assert 'inception_score' not in page.text and 'num_real' not in page.text
    assert 'FID' in page.text and '31.25' in page.text
    assert 'not the FID' not in page.text
    other = {f'{name}_other_weights': found[name] for name in list(found)[:3]}
    _, page, _ = written(tmp_path, fidelity=other | many)
    assert not [name for name in other if name in page.text]
    assert 'Fréchet distance, Inception, other weights' in page.text


def classified(confusion):
    cnn = {'mean': 0.5, 'std': 0.0, 'values': [0.5], 'confusion': confusion}
    return {'accuracy': {'synthetic': {'cnn': cnn}}, 'floor': 0.519}


def test_page_and_terminal_say_how_often_the_releases_own_labeller_is_right(tmp_path):
    right = {'labeller': {'mean': 0.979, 'std': 0.0, 'values': [0.979]}}
    accuracy = {**ACCURACY, figures.OWN: right}
    _, page, _ = written(tmp_path, accuracy=accuracy, ceiling={})
    assert 'Labellerreal images, in the release0.979' in re.sub(
        r'\s*\n\s*', '', page.text
    )
    told = ' '.join(summary.summary(Workdir(tmp_path)).split())
    assert 'Labeller, in the release 0.979' in told


def test_page_and_terminal_say_that_a_run_has_failed(tmp_path):
    taught_nothing = 'The images taught the classifier nothing that'
    _, page, _ = written(tmp_path, ceiling={}, **classified([[519, 0], [481, 0]]))
    assert taught_nothing in page.text
    workdir = Workdir(tmp_path)
    written(tmp_path, **classified([[519, 0], [481, 0]]))
    assert taught_nothing in summary.summary(workdir)
    written(tmp_path, **classified([[519, 0], [0, 481]]))
    assert taught_nothing not in summary.summary(workdir)


@pytest.mark.parametrize('suite', ['dpimagebench', 'slow'])
def test_page_and_terminal_have_the_figure_of_dpimagebench(tmp_path, suite):
    found = {'mean': 0.5, 'std': 0.0, 'values': [0.5]}
    models = {
        'resnext': found | {'selected': found | {'mean': 0.625}},
        'resnet_110': found | {'selected': found | {'mean': 0.875}},
    }
    config = CONFIG | {'evaluation': CONFIG['evaluation'] | {'suite': suite}}
    _, page, _ = written(tmp_path, config=config, accuracy={'synthetic': models})
    for text in (page.text, summary.summary(Workdir(tmp_path))):
        assert ('0.750' in text) == (BENCH_MEAN in text) == (suite == 'dpimagebench')


@pytest.mark.parametrize(
    ('floor', 'fraction', 'told'),
    [
        (None, 0.0, 'data.test_fraction = 0'),
        (None, 0.2, 'Not evaluated yet: --stage=evaluate'),
        (1.0, 0.2, 'of one class'),
    ],
)
def test_the_terminal_says_why_there_is_no_accuracy(tmp_path, floor, fraction, told):
    config = declaring(test_fraction=fraction)
    accuracy = {'synthetic': {}} if floor else {}
    written(tmp_path, config=config, accuracy=accuracy, floor=floor)
    assert told in summary.summary(Workdir(tmp_path))


def test_images_of_one_class_have_fidelity_without_accuracy(tmp_path):
    _, _, html = written(
        tmp_path, accuracy={'synthetic': {}}, floor=1.0, fidelity={'recall': 0.25}
    )
    text = words_of(html)
    assert 'No accuracy: all are of one class.' in text
    assert 'Not evaluated.' not in text and 'Recall 0.25' in text


def test_a_class_without_test_images_has_a_dash(tmp_path):
    cnn = ACCURACY['synthetic']['cnn'] | {'per_class': [0.625, None]}
    _, _, html = written(tmp_path, accuracy={'synthetic': {'cnn': cnn}})
    assert 'Small CNN 0.62 –' in words_of(html)


def test_a_ceiling_is_said_to_come_from_training_images(tmp_path):
    told = 'that real training images have taught'
    assert told not in written(tmp_path)[1].text
    assert told in written(tmp_path, ceiling=ACCURACY['synthetic'])[1].text
