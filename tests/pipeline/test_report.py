"""Contracts of the run's report."""

import json
import math
import re
from html.parser import HTMLParser

import jinja2
import numpy as np
import pytest

from dpaf_jax.pipeline import report, summary
from dpaf_jax.release import pictures
from dpaf_jax.training.workdir import Workdir

MECHANISM = {
    'name': 'dpagg',
    'kind': 'sum of <features>',
    'sampling_prob': 0.004,
    'l2_sensitivity': 2.0,
    'noise_multiplier': 1.375,
    'steps': 900,
    'expected_batch_size': 24.0,
    'capacity': 68,
}
PRIVACY = {
    'guarantee': 'certified',
    'epsilon': 2.0,
    'epsilon_rdp': 2.25,
    'delta': 1e-5,
    'overflow_delta': 1e-7,
    'neighbors': 'zero-out',
    'num_examples': 6000,
    'accountant': 'PLD',
    'mechanisms': [MECHANISM],
    'dp_event': {'class': 'NoOpDpEvent'},
}
ACCURACY = {
    'synthetic': {
        'cnn': {'mean': 0.71, 'std': 0.0141, 'values': [0.7, 0.72]},
        'logistic_regression': {'mean': 0.5, 'std': 0.0, 'values': [0.5]},
    }
}
CHECKED = {'verify': None, 'audit': None, 'attacks': {}}
CONSISTENT = {
    'verdict': 'consistent: epsilon = 2.0.',
    'when': '2026-03-04 05:06 UTC',
    'passed': True,
    'current': True,
}
HISTORY = [
    {'phase': p, 'step': s, 'seconds': s, 'epsilon_spent': e, 'loss_head': 1 / s}
    for p, s, e in (('classifier', 8, 0.1), ('gan', 8, 0.5), ('gan', 16, 2.0))
]


class Page(HTMLParser):
    """Collects text, tags, and every attribute that could fetch something."""

    VOID = ('meta', 'img', 'link', 'br', 'hr', 'input')

    def __init__(self, html: str):
        super().__init__()
        self.tags, self.links, self.open, self.text = [], [], [], ''
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ('src', 'href', 'srcset', 'action')]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def written(workdir, **changes):
    images = np.zeros((4, 8, 8, 1), np.uint8)
    arguments = {
        'config': {'method': 'dpaf', 'data': {'num_classes': 2}},
        'privacy': PRIVACY,
        'fidelity': {},
        'accuracy': ACCURACY,
        'checked': CHECKED,
        'history': HISTORY,
        'wall_seconds': {'train': 250.0, 'evaluate': 30.5},
        'sample_grid': pictures.sample_grid(images, np.arange(4) % 2, 2),
        'environment': {'python': '3.12.1'},
    }
    made = report.write_report(workdir, **{**arguments, **changes})
    html = (workdir / 'report.html').read_text(encoding='utf-8')
    return made, Page(html), html


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


def test_headline_says_epsilon_its_meaning_and_its_unit(tmp_path):
    _, page, _ = written(tmp_path)
    assert 'ε = 2, δ = 1e-05' in page.text
    assert 'certified' in page.text
    assert 'e^ε = 7.39' in page.text
    assert 'not one person' in page.text
    assert 'No privacy guarantee' not in page.text


def test_a_run_without_guarantee_says_so_first_and_shows_no_epsilon_of_its_own(
    tmp_path,
):
    privacy = {
        **PRIVACY,
        'guarantee': 'none (the classifier has <hidden> state)',
        'epsilon': None,
        'claimed_epsilon': 10.0,
    }
    _, page, html = written(tmp_path, privacy=privacy)
    assert 'claimed ε = 10, certified ε: none' in page.text
    assert 'the classifier has <hidden> state' in page.text
    assert 'class="bad"' in html
    assert page.text.index('No privacy guarantee') < page.text.index('Usefulness')
    assert '✓' not in page.text
    assert 'ε spent' not in page.text
    assert 'private by construction' not in page.text


def test_a_seeded_run_does_not_show_its_plans_epsilon_as_true(tmp_path):
    privacy = {**PRIVACY, 'guarantee': 'none (fixed entropy)', 'epsilon': 7.77}
    _, page, _ = written(tmp_path, privacy=privacy)
    assert 'certified ε: none' in page.text
    assert 'fixed entropy' in page.text
    assert '7.77' not in page.text


def test_real_test_figures_stand_under_their_warning(tmp_path):
    _, page, _ = written(tmp_path)
    warning = page.text.index('Measured on real test images: not covered by ε')
    assert warning < page.text.index('0.710 ± 0.014') < page.text.index('0.700, 0.720')


def test_one_seed_has_no_deviation(tmp_path):
    _, page, html = written(tmp_path)
    assert '± 0.000' not in html
    assert 'Logistic regressionsynthetic0.5000.500' in re.sub(
        r'\s*\n\s*', '', page.text
    )


def test_figures_stand_between_floor_and_ceiling_also_by_class(tmp_path):
    cnn = ACCURACY['synthetic']['cnn'] | {'per_class': [0.625, 0.875]}
    accuracy = {'synthetic': {'cnn': cnn}}
    ceiling = {'cnn': {'mean': 0.93, 'std': 0.0, 'values': [0.93]}}
    made, _, html = written(tmp_path, accuracy=accuracy, floor=0.4321, ceiling=ceiling)
    text = ' '.join(re.sub('<[^>]*>', ' ', html).split())
    assert 'Small CNN real images (ceiling) 0.930' in text
    assert 'Always the largest class (floor) nothing 0.432' in text
    assert 'Accuracy by class 0 1 Small CNN 0.62 0.88' in text
    assert 'not asked for' not in text
    assert (made['floor'], made['ceiling']) == (0.4321, ceiling)
    _, page, _ = written(tmp_path, floor=0.4)
    assert 'ceiling was not asked for: evaluation.train_on_real=True' in page.text


def test_a_reader_learns_when_by_what_and_on_which_data(tmp_path):
    data = {'num_classes': 2, 'source': 'folder', 'image_size': 48, 'channels': 3}
    environment = {'dpaf_jax': '9.8.7', 'commit': 'abcdef012345'}
    made, page, _ = written(
        tmp_path, config={'method': 'dpaf', 'data': data}, environment=environment
    )
    assert f'Report of {made["when"]}, by dpaf_jax 9.8.7, commit abcdef' in page.text
    assert '48 × 48 pixels, colour' in page.text and 'folder' in page.text


def test_a_histogram_of_classes_is_not_called_equal_shares(tmp_path):
    data = {'num_classes': 2, 'noisy_prior': 0.05, 'class_prior': ()}
    _, page, _ = written(tmp_path, config={'method': 'dpaf', 'data': data})
    assert 'by a noisy histogram, which ε covers' in page.text
    assert 'taken to be equal' not in page.text


def test_the_next_step_goes_by_what_was_found(tmp_path):
    _, page, _ = written(tmp_path)
    assert (
        f'dpaf-jax verify {tmp_path}' in page.text and 'Share the folders' in page.text
    )
    failed = CHECKED | {'verify': CONSISTENT | {'passed': False}}
    _, page, _ = written(tmp_path, checked=failed)
    assert 'Do not share this release' in page.text
    assert 'Share the folders' not in page.text
    _, page, _ = written(tmp_path, privacy=PRIVACY | {'guarantee': 'none (x)'})
    assert 'Share the folders' not in page.text


def test_print_and_narrow_screens_have_rules_of_their_own(tmp_path):
    _, _, html = written(tmp_path)
    assert '@media print' in html and '.detail { display: none; }' in html
    assert 'max-width: 48rem' in html
    assert 'screen and (prefers-color-scheme: dark)' in html  # paper is white


def test_what_was_not_checked_is_said_with_the_command(tmp_path):
    _, page, _ = written(tmp_path)
    assert page.text.count('Not run.') == 2
    for word in ('verify', 'audit', 'attack'):
        assert f'dpaf-jax {word} {tmp_path}' in page.text
    assert 'Attacks are made' not in page.text


def test_outcomes_stand_with_their_times_and_no_command(tmp_path):
    audit = CONSISTENT | {'verdict': 'No violation in 9 checks.', 'when': 'today'}
    attacks = {'membership': {'verdict': 'nothing found', 'when': 'at noon'}}
    checked = {'verify': CONSISTENT, 'audit': audit, 'attacks': attacks}
    made, page, html = written(tmp_path, checked=checked)
    assert made['checked'] == checked
    for outcome in (CONSISTENT, audit, attacks['membership']):
        assert outcome['verdict'] in page.text and outcome['when'] in page.text
    assert 'python -m' not in page.text and 'class="bad"' not in html
    assert page.text.index('not covered by ε') < page.text.index('nothing found')


@pytest.mark.parametrize(
    ('checked', 'told'),
    [
        ({'audit': CONSISTENT | {'passed': False}}, 'its audit has found a violation'),
        (
            {
                'attacks': {
                    'membership': {'verdict': 'V', 'when': 'w', 'violated': True}
                }
            },
            'more was found than ε permits, by membership',
        ),
        (
            {
                'attacks': {
                    'membership': {
                        'verdict': 'V',
                        'when': 'w',
                        'violated': True,
                        'current': False,
                    }
                },
                'verify': CONSISTENT | {'current': False},
            },
            'See what an attacker finds',
        ),
        (
            {'verify': CONSISTENT | {'current': False}},
            'Have the release checked by itself',
        ),
    ],
)
def test_what_was_found_decides_the_next_step(tmp_path, checked, told):
    _, page, _ = written(tmp_path, checked=CHECKED | checked)
    assert told in page.text
    assert ('Share the folders' in page.text) == ('Do not share' not in page.text)


def test_a_rejected_release_and_a_violation_stand_out(tmp_path):
    rejected = CONSISTENT | {'verdict': 'REJECTED: files', 'passed': False}
    for name in ('verify', 'audit'):
        _, page, html = written(tmp_path, checked=CHECKED | {name: rejected})
        assert 'class="bad"' in html and 'REJECTED: files' in page.text


def test_an_outcome_about_another_release_is_not_shown_as_this_ones(tmp_path):
    old = CONSISTENT | {'current': False}
    _, page, _ = written(tmp_path, checked=CHECKED | {'verify': old})
    assert page.text.index('OUT OF DATE') < page.text.index(old['verdict'])


def test_a_result_without_a_verdict_is_told_nevertheless(tmp_path):
    attacks = {'gradient_inversion': {'verdict': None, 'when': None}}
    _, page, _ = written(tmp_path, checked=CHECKED | {'attacks': attacks})
    assert 'gradient_inversion' in page.text
    assert 'no verdict is recorded' in page.text


def test_everything_that_comes_from_outside_is_escaped(tmp_path):
    evil = '<script>alert("x")</script>&'
    _, page, html = written(
        tmp_path,
        config={'method': evil, evil: evil, 'data': {'num_classes': 2}},
        privacy={
            **PRIVACY,
            'neighbors': evil,
            'accountant': evil,
            'mechanisms': [{**MECHANISM, 'name': evil, 'kind': evil}],
        },
        checked={
            'verify': CONSISTENT | {'verdict': evil, 'when': evil},
            'audit': None,
            'attacks': {evil: {'verdict': evil, 'when': evil}},
        },
        accuracy={evil: {evil: ACCURACY['synthetic']['cnn']}},
        history=[{'phase': evil, 'step': 1, 'epsilon_spent': 1.0, evil: 1.0}],
        wall_seconds={evil: 1.0},
        environment={evil: evil},
    )
    assert 'script' not in page.tags
    assert '<script' not in html
    assert page.text.count(evil) >= 13


def test_a_page_that_could_not_say_everything_is_not_made(tmp_path):
    privacy = {name: v for name, v in PRIVACY.items() if name != 'neighbors'}
    with pytest.raises(jinja2.UndefinedError, match='neighbors'):
        written(tmp_path, privacy=privacy)


@pytest.mark.parametrize('num_examples,warns', [(100_001, True), (99_999, False)])
def test_delta_of_at_least_one_over_n_warns(tmp_path, num_examples, warns):
    privacy = {**PRIVACY, 'num_examples': num_examples}
    _, page, _ = written(tmp_path, privacy=privacy)
    assert ('is not below 1/N' in page.text) == warns


def test_a_run_that_was_not_evaluated_still_has_a_report(tmp_path):
    _, page, _ = written(
        tmp_path, accuracy={}, history=[], wall_seconds={}, sample_grid=None
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


def test_the_planned_epsilon_is_a_line_that_the_spent_one_is_seen_against(tmp_path):
    _, page, html = written(tmp_path)
    assert 'planned: 2' in page.text and html.count('stroke-dasharray') == 1


def test_mechanisms_are_listed_for_people(tmp_path):
    _, page, _ = written(tmp_path)
    for text in ('dpagg', 'sum of <features>', '0.004', '1.375', '900', '68'):
        assert text in page.text


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


def classified(confusion):
    cnn = {'mean': 0.5, 'std': 0.0, 'values': [0.5], 'confusion': confusion}
    return {'accuracy': {'synthetic': {'cnn': cnn}}, 'floor': 0.519}


def test_page_and_terminal_say_that_a_run_has_failed(tmp_path):
    taught_nothing = 'The images taught the classifier nothing that'
    _, page, _ = written(tmp_path, ceiling={}, **classified([[519, 0], [481, 0]]))
    assert taught_nothing in page.text
    workdir = Workdir(tmp_path)
    config = {'method': 'dpaf', 'data': {'num_classes': 2, 'columns': ''}}
    written(tmp_path, config=config, **classified([[519, 0], [481, 0]]))
    assert taught_nothing in summary.summary(workdir)
    written(tmp_path, config=config, **classified([[519, 0], [0, 481]]))
    assert taught_nothing not in summary.summary(workdir)


@pytest.mark.parametrize(
    ('floor', 'fraction', 'told'),
    [
        (None, 0.0, 'data.test_fraction = 0'),
        (None, 0.2, 'Not evaluated yet: --stage=evaluate'),
        (1.0, 0.2, 'of one class'),
    ],
)
def test_the_terminal_says_why_there_is_no_accuracy(tmp_path, floor, fraction, told):
    config = {'method': 'dpaf', 'data': {'num_classes': 2, 'test_fraction': fraction}}
    accuracy = {'synthetic': {}} if floor else {}
    written(tmp_path, config=config, accuracy=accuracy, floor=floor)
    assert told in summary.summary(Workdir(tmp_path))


def test_nobody_is_told_to_share_what_is_not_certified(tmp_path):
    config = {'method': 'dpaf', 'data': {'num_classes': 2, 'test_fraction': 0.0}}
    for privacy in (PRIVACY, PRIVACY | {'guarantee': 'none (no noise)'}):
        certified = privacy is PRIVACY
        _, page, _ = written(
            tmp_path, config=config, privacy=privacy, accuracy={}, ceiling={}
        )
        shown = summary.summary(Workdir(tmp_path))
        assert ('may be shared' in shown) == certified
        assert ('What may be shared' in page.text) == certified
        assert ('Nothing of this run may be shared' in page.text) != certified
        assert shown.count('AS PRIVATE AS THE DATA') == 2 * (not certified)


def test_a_ceiling_is_said_to_come_from_training_images(tmp_path):
    told = 'that real training images have taught'
    assert told not in written(tmp_path)[1].text
    assert told in written(tmp_path, ceiling=ACCURACY['synthetic'])[1].text
