"""What a run's report promises, what was checked of it, and what it says is to do next."""

import jinja2
import pytest
from report_cases import ATTACKED, CHECKED, CONSISTENT, PRIVACY, declaring, written

from dpaf_jax.pipeline import summary
from dpaf_jax.training.workdir import Workdir


def test_headline_says_epsilon_its_meaning_and_its_unit(tmp_path):
    _, page, _ = written(tmp_path)
    assert 'ε = 2, δ = 1e-05' in page.text
    assert 'certified' in page.text
    assert 'a factor of 7.4 (e^ε)' in page.text
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


def test_what_was_not_checked_is_said_with_the_command(tmp_path):
    _, page, _ = written(tmp_path)
    assert page.text.count('Not run.') == 2
    for word in ('verify', 'audit', 'attack'):
        assert f'dpaf-jax {word} {tmp_path}' in page.text
    assert 'Attacks are made' not in page.text


def test_outcomes_stand_with_their_times_and_no_command(tmp_path):
    audit = CONSISTENT | {'verdict': 'No violation in 9 checks.', 'when': 'today'}
    attacks = {'membership': ATTACKED}
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
            {'attacks': {'membership': ATTACKED | {'violated': True}}},
            'more was found than ε permits, by membership',
        ),
        (
            {
                'attacks': {
                    'membership': ATTACKED | {'violated': True, 'current': False}
                },
                'verify': CONSISTENT | {'current': False},
            },
            'See what an attacker finds',
        ),
        (
            {'verify': CONSISTENT | {'current': False}},
            'Have the release checked by itself',
        ),
        (
            {'audit': CONSISTENT | {'passed': False, 'current': False}},
            'Share the folders',
        ),
    ],
)
def test_what_was_found_decides_the_next_step(tmp_path, checked, told):
    _, page, html = written(tmp_path, checked=CHECKED | checked)
    assert told in page.text
    fails = 'Do not share' in page.text
    assert ('Share the folders' in page.text) == (not fails)
    assert ('class="bad"' in html) == fails


def test_a_rejected_release_and_a_violation_stand_out(tmp_path):
    rejected = CONSISTENT | {'verdict': 'REJECTED: files', 'passed': False}
    for name in ('verify', 'audit'):
        _, page, html = written(tmp_path, checked=CHECKED | {name: rejected})
        assert 'class="bad"' in html and 'REJECTED: files' in page.text


def test_an_outcome_about_another_release_is_not_shown_as_this_ones(tmp_path):
    old = CONSISTENT | {'current': False}
    _, page, _ = written(tmp_path, checked=CHECKED | {'verify': old})
    assert page.text.index('OUT OF DATE') < page.text.index(old['verdict'])


def test_an_outcome_about_another_plan_neither_decides_nor_replaces_the_command(
    tmp_path,
):
    old = CONSISTENT | {'current': False, 'passed': False}
    _, page, html = written(tmp_path, checked=CHECKED | {'verify': old, 'audit': old})
    assert 'class="bad"' not in html and 'Do not share' not in page.text
    for word in ('verify', 'audit'):
        assert f'dpaf-jax {word} {tmp_path}' in page.text


def test_a_result_without_a_verdict_is_told_nevertheless(tmp_path):
    attacks = {'gradient_inversion': ATTACKED | {'verdict': None}}
    _, page, _ = written(tmp_path, checked=CHECKED | {'attacks': attacks})
    assert 'gradient_inversion' in page.text
    assert 'no verdict is recorded' in page.text


def test_a_page_that_could_not_say_everything_is_not_made(tmp_path):
    privacy = {name: v for name, v in PRIVACY.items() if name != 'neighbors'}
    with pytest.raises(jinja2.UndefinedError, match='neighbors'):
        written(tmp_path, privacy=privacy)


@pytest.mark.parametrize('num_examples,warns', [(100_001, True), (99_999, False)])
def test_delta_of_at_least_one_over_n_warns(tmp_path, num_examples, warns):
    privacy = {**PRIVACY, 'num_examples': num_examples}
    _, page, _ = written(tmp_path, privacy=privacy)
    assert ('is not below 1/N' in page.text) == warns


def test_the_planned_epsilon_is_a_line_that_the_spent_one_is_seen_against(tmp_path):
    _, page, html = written(tmp_path)
    assert 'planned: 2' in page.text and html.count('stroke-dasharray') == 1


def test_mechanisms_are_listed_for_people(tmp_path):
    _, page, _ = written(tmp_path)
    for text in ('dpagg', 'sum of <features>', '0.004', '1.375', '900', '68'):
        assert text in page.text


def test_nobody_is_told_to_share_what_is_not_certified(tmp_path):
    config = declaring(test_fraction=0.0)
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
