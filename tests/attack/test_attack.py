"""Attacks on a release: they see what is planted, nothing where nothing is, and keep it in."""

import dataclasses
import json
import math
import shutil
import stat

import numpy as np
import pytest
import tiny_runs
from PIL import Image
from scipy import stats

from dpaf_jax.attack import membership, memorisation
from dpaf_jax.attack.distances import nearest
from dpaf_jax.attack.registry import ATTACKS
from dpaf_jax.attack.roc import Roc, measurable, permitted_auc, permitted_tpr, rate
from dpaf_jax.attack.target import Target, open_target
from dpaf_jax.config import Column
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures('optimised')

PRIVACY = {'guarantee': 'certified', 'epsilon': 1.0, 'delta': 1e-5}
NUMBER, SIDE = 200, 8


def images(number, seed):
    return np.random.default_rng(seed).integers(
        256, size=(number, SIDE, SIDE, 1), dtype=np.uint8
    )


def target(folder, synthetic):
    labels = np.arange(NUMBER, dtype=np.int32) % 10
    members = images(NUMBER, 1)
    return Target(synthetic, members, labels, images(2 * NUMBER, 2), PRIVACY, folder)


@pytest.fixture
def memorising(tmp_path):
    """A generator that hands out its training images, all but untouched."""
    members = images(NUMBER, 1)
    return target(tmp_path, members ^ 1)


@pytest.fixture
def independent(tmp_path):
    return target(tmp_path, images(NUMBER, 3))


# --- attacks ---------------------------------------------------------------------------


def test_every_membership_attack_finds_planted_copies(memorising):
    found = {name: roc.auc(0.05) for name, roc in membership.attack(memorising).items()}
    assert set(found) == {'gan-leaks', 'gan-leaks calibrated', 'monte-carlo', 'logan'}
    assert found['gan-leaks'].value > 0.99
    assert found['gan-leaks calibrated'].value > 0.99
    assert found['monte-carlo'].value > 0.95
    # A discriminator of random pixels has nothing to learn but the images themselves.
    assert found['logan'].value > 0.8


def test_no_membership_attack_finds_anything_in_independent_images(independent):
    found = membership.run(independent)
    assert not found['found'] and not found['violations']
    assert (
        found['verdict'].startswith('Nothing found')
        and 'proves nothing' in (found['verdict'])
    )
    for figures in found['attacks'].values():
        assert figures['auc']['low'] < 0.5 < figures['auc']['high']


def test_copies_are_counted_and_near(memorising, independent):
    copies = dataclasses.replace(memorising, synthetic=images(NUMBER, 1))
    found = memorisation.run(copies)
    share = found['chance']['looks'][f'all {NUMBER} synthetic images']
    assert found['exact_copies'] == NUMBER
    assert share['value'] == pytest.approx(1)
    assert found['found'] and found['verdict'].startswith('FOUND')
    found = memorisation.run(independent)
    assert found['exact_copies'] == 0
    assert not found['found'] and found['verdict'].startswith('Nothing found')


def test_a_set_that_is_larger_is_not_taken_for_nearer(independent):
    few = dataclasses.replace(independent, non_members=images(20, 5))
    share = memorisation.run(few)['chance']['looks'][f'all {NUMBER} synthetic images']
    assert share['value'] > 0.8  # of all real images, 0.91 are training images
    assert share['expected'] == pytest.approx(NUMBER / (NUMBER + 20))
    assert share['value'] < share['limit']


def test_the_nearest_training_image_is_known_where_a_held_out_one_is_nearer(tmp_path):
    some = target(tmp_path, images(40, 2))  # copies of held-out images
    among = memorisation.attack(some).among
    plain = nearest(some.synthetic, some.members)
    np.testing.assert_array_equal(among.place, plain.place)
    np.testing.assert_allclose(among.distance, plain.distance, rtol=1e-5)


def test_nearest_is_the_nearest(monkeypatch):
    monkeypatch.setattr('dpaf_jax.attack.distances.CHUNK', 7)
    queries, base = images(20, 1), images(33, 2)
    apart = (queries[:, None].astype(float) - base[None]).reshape(20, 33, -1) / 255
    exact = np.linalg.norm(apart, axis=2)
    found = nearest(queries, base)
    np.testing.assert_array_equal(found.place, exact.argmin(axis=1))
    np.testing.assert_allclose(found.distance, exact.min(axis=1), rtol=1e-5)
    assert np.all(nearest(base, base).distance < 1e-5)


# --- tables ----------------------------------------------------------------------------

COLUMNS = tuple(Column(f'x{i}', -10.0, 10.0) for i in range(6))


def rows(number, seed):
    values = np.random.default_rng(seed).random((number, 1, 6, 1))
    return values.astype(np.float32)


def table_target(folder, synthetic):
    labels = np.arange(NUMBER, dtype=np.int32) % 2
    members, others = rows(NUMBER, 1), rows(2 * NUMBER, 2)
    return Target(synthetic, members, labels, others, PRIVACY, folder, COLUMNS)


def test_copied_rows_of_a_table_are_found_and_listed_in_its_units(tmp_path):
    copies = table_target(tmp_path, rows(NUMBER, 1))
    scores = membership.attack(copies)
    aucs = {name: roc.auc(0.05).value for name, roc in scores.items()}
    assert min(aucs['gan-leaks'], aucs['gan-leaks calibrated']) > 0.99
    assert aucs['monte-carlo'] > 0.9
    found = memorisation.run(copies)
    assert found['exact_copies'] == NUMBER and found['found']
    assert 'training rows' in memorisation.table(found)
    assert not list(tmp_path.glob('*.png'))
    warning, head, one, other, *_ = (
        (tmp_path / 'closest_pairs_NOT_PRIVATE.csv').read_text().splitlines()
    )
    assert 'NOT PRIVATE' in warning
    assert head == 'distance,row,x0,x1,x2,x3,x4,x5'
    made, real = (line.split(',') for line in (one, other))
    assert (made[1], real[1]) == ('synthetic', 'training') and made[2:] == real[2:]
    values = np.array(made[2:], float)
    near = np.abs(rows(NUMBER, 1).reshape(NUMBER, 6) * 20 - 10 - values).max(axis=1)
    assert near.min() < 1e-4


def test_independent_rows_are_not_taken_for_copies(tmp_path):
    free = table_target(tmp_path, rows(NUMBER, 3))
    assert not membership.run(free)['found']
    assert not memorisation.run(free)['found']


def test_equal_rows_are_shared_out_fairly(tmp_path):
    # Two binary columns: every synthetic row has equals on both sides.
    def few(number, seed):
        return np.round(rows(number, seed))[:, :, :2]

    columns = COLUMNS[:2]
    labels = np.zeros(300, np.int32)
    some = Target(
        few(500, 3), few(300, 1), labels, few(60, 2), PRIVACY, tmp_path, columns
    )
    looks = memorisation.run(some)['chance']['looks']
    assert looks['all 500 synthetic rows']['value'] == pytest.approx(300 / 360, abs=0.3)
    assert not memorisation.run(some)['found']


def test_a_table_has_no_images_to_recover(tmp_path):
    with pytest.raises(UserError, match='Choose membership or memorisation'):
        ATTACKS['gradient_inversion'].run(table_target(tmp_path, rows(9, 3)))


# --- figures ---------------------------------------------------------------------------


def test_roc_by_hand():
    roc = Roc(np.array([3.0, 1.0, 1.0]), np.array([2.0, 1.0, 0.0, 0.0]))
    assert roc.auc(0.05).value == pytest.approx((4 + 2.5 + 2.5) / 12)
    assert roc.point(0, 0.05).tpr.value == pytest.approx(1 / 3)
    assert roc.point(2, 0.05).tpr.value == 1
    # Ties with the second do not count.
    assert roc.point(1, 0.05).tpr.value == pytest.approx(1 / 3)
    assert Roc(np.zeros(5), np.zeros(5)).point(2, 0.05).tpr.value == 0


def test_only_rates_that_ten_non_members_show_are_measurable():
    assert measurable(64) == {10 / 64: 10}  # neither 1 % nor 0.1 %
    assert measurable(999) == {10 / 999: 10}
    assert measurable(1000) == {0.01: 10}
    assert measurable(9999) == {10 / 9999: 10, 0.01: 99}
    assert measurable(10000) == {0.001: 10, 0.01: 100}


def test_a_rate_that_is_not_measurable_is_not_stated(tmp_path, independent):
    found = membership.run(independent)  # 200 non-members
    text = membership.table(found)
    for low in ('1 %', '0.1 %'):
        assert f'TPR at FPR {low}: not measurable with 200 non-members' in text
    heads = text.splitlines()[0]
    assert 'TPR at FPR 5 %' in heads and '1 %' not in heads


def test_intervals_cover_the_truth():
    auc = stats.norm.cdf(1 / math.sqrt(2))  # of N(1, 1) against N(0, 1)
    runs, hits = 300, {'auc': 0, 'fpr': 0, 'tpr': 0, 'band': 0}
    grid = np.geomspace(0.1, 1, 20)
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        members, others = rng.normal(1, 1, 100), rng.normal(0, 1, 100)
        roc, threshold = Roc(members, others), -np.sort(-others)[10]
        interval, point = roc.auc(0.05), roc.point(10, 0.05)
        hits['auc'] += interval.low < auc < interval.high
        fpr, tpr = stats.norm.sf(threshold), stats.norm.sf(threshold - 1)
        hits['fpr'] += fpr < point.fpr.high
        hits['tpr'] += point.tpr.low < tpr < point.tpr.high
        low, high = roc.band(grid, 0.05)
        true = stats.norm.sf(stats.norm.isf(grid) - 1)
        hits['band'] += np.mean((low <= true) & (true <= high))
    assert hits['auc'] / runs >= 0.99  # whatever the law: wide for this one
    assert 0.95 <= hits['fpr'] / runs < 1  # one end of two: 97.5 %
    assert 0.93 <= hits['tpr'] / runs < 1
    assert hits['band'] / runs >= 0.95


@pytest.mark.parametrize('count', [0, 1, 10, 64])
def test_limits_are_those_of_the_binomial_test(count):
    exact = stats.binomtest(count, 64).proportion_ci(0.99, 'exact')
    found = rate(count, 64, 0.01)
    np.testing.assert_allclose(found[1:], exact, atol=1e-9)
    assert found.value == count / 64


def test_a_perfect_score_is_not_taken_for_certain():
    roc = Roc(np.ones(50), np.zeros(50))
    assert roc.auc(0.05).value == 1
    assert roc.auc(0.05).low == pytest.approx(math.exp(-math.log(2 / 0.05) / 50))
    assert roc.point(10, 0.05).tpr.low == pytest.approx(0.025 ** (1 / 50))


def test_the_band_of_tied_scores_holds_the_curve():
    rng = np.random.default_rng(0)
    roc = Roc(rng.poisson(2, 300), rng.poisson(1, 300))
    grid = np.geomspace(0.05, 1, 50)
    low, high = roc.band(grid, 0.05)
    measured = np.interp(grid, *roc.curve())
    assert np.all(low <= measured) and np.all(measured <= high)


def test_permitted_rates_are_those_of_randomised_response():
    epsilon = math.log(3)
    # (epsilon, 0): its ROC has one corner, at FPR 1/4 and TPR 3/4.
    assert permitted_tpr(0.25, epsilon, 0) == pytest.approx(0.75)
    assert permitted_tpr(0.01, epsilon, 1e-5) == pytest.approx(0.03001)
    assert permitted_auc(epsilon, 0) == pytest.approx(0.75, abs=1e-3)
    assert permitted_auc(1e-6, 0) == pytest.approx(0.5, abs=1e-3)
    assert permitted_tpr(0.001, 800.0, 0) == 1


# --- what is written -------------------------------------------------------------------


@pytest.fixture
def workdir(tmp_path):
    copy = tmp_path / 'run'
    shutil.copytree(tiny_runs.finished('one_shot').workdir, copy)
    return copy


def files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob('*')
        if path.is_file()
    }


def command(*args):
    from dpaf_jax.attack import __main__ as attack

    return tiny_runs.call(attack.run, 'dpaf_jax.attack', *args)


@pytest.mark.slow
def test_results_lie_under_nonprivate_alone_and_say_so(workdir, monkeypatch):
    # The run has too few held-out images for an inference: only these limits differ.
    real = open_target(workdir)
    assert real.folder == workdir / 'nonprivate' / 'attacks'
    before = files(workdir)
    ATTACKS['memorisation'].run(real)
    more = dataclasses.replace(
        real, members=images(30, 1), non_members=images(60, 2), synthetic=images(40, 3)
    )
    found = ATTACKS['membership'].run(more)
    after = files(workdir)
    assert {name: after[name] for name in before} == before
    new = set(after) - set(before)
    assert {path.name for path in new} == {
        'NOT_PRIVATE.txt', 'membership_NOT_PRIVATE.json', 'membership_roc_NOT_PRIVATE.png',
        'memorisation_NOT_PRIVATE.json', 'closest_pairs_NOT_PRIVATE.png',
    }  # fmt: skip
    assert all(path.parts[:2] == ('nonprivate', 'attacks') for path in new)
    for folder in real.folder, real.folder.parent:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ('membership', 'memorisation'):
        content = json.loads((real.folder / f'{name}_NOT_PRIVATE.json').read_text())
        assert content['warning'].startswith('NOT PRIVATE')
    assert found['permitted']['auc'] <= 1
    picture = Image.open(real.folder / 'closest_pairs_NOT_PRIVATE.png')
    assert picture.getpixel((picture.width // 2, 1))[0] > 150  # the red banner


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_told_before_the_attack(
    workdir, monkeypatch
):
    begun = []
    monkeypatch.setattr(memorisation, 'run', lambda target: begun.append(target))
    shutil.rmtree(workdir / 'nonprivate', ignore_errors=True)
    (workdir / 'nonprivate').write_text('in the way')
    status, _, error = command('--attack=memorisation', f'--workdir={workdir}')
    (workdir / 'nonprivate').unlink()
    assert status == 2 and 'a file. Give another --workdir' in error and not begun


def test_a_run_that_certifies_nothing_permits_anything(independent):
    privacy = {'guarantee': 'none (as published)', 'epsilon': None, 'delta': 1e-5}
    found = membership.run(dataclasses.replace(independent, privacy=privacy))
    assert found['permitted'] is None
    assert 'permitted: anything' in membership.table(found)


@pytest.mark.slow
def test_command_prints_figures_and_where_they_are(workdir):
    status, out, _ = command('--attack=memorisation', f'--workdir={workdir}')
    assert status == 0 and 'exact copies' in out and 'NOT PRIVATE' in out


@pytest.mark.parametrize(
    ('args', 'message'),
    [
        ((), 'are needed'),
        (
            ('--attack=guess', '--workdir=x'),
            'Choose membership or memorisation or gradient_inversion',
        ),
        (('--attack=membership', '--workdir=nowhere'), 'holds no release'),
    ],
)
def test_bad_input_is_one_line(args, message):
    status, _, error = command(*args)
    assert status == 2 and message in error and len(error.splitlines()) == 1


def test_missing_data_are_named_with_the_remedy(workdir):
    shutil.rmtree(workdir / 'private' / 'data')
    with pytest.raises(UserError, match='holds no prepared data.*config.data.cache'):
        open_target(workdir)


def test_the_remedy_prepares_them_again(workdir):
    shutil.rmtree(workdir / 'private' / 'data')
    Pipeline(tiny_runs.finished('one_shot').config, workdir).run('prepare')
    assert open_target(workdir)


def test_other_data_than_the_run_s_are_refused(workdir):
    path = workdir / 'private' / 'fingerprint.json'
    known = json.loads(path.read_text()) | {'data checksum': 'of others'}
    path.write_text(json.dumps(known))
    with pytest.raises(UserError, match='other records than the run was trained on'):
        open_target(workdir)


def test_data_of_another_size_are_refused(workdir, monkeypatch):
    (workdir / 'samples' / 'synthetic.npz').unlink()
    np.savez(
        workdir / 'samples' / 'synthetic.npz',
        images=images(4, 1)[:, :4],
        labels=[0] * 4,
    )
    with pytest.raises(UserError, match='Give the data that the run was trained on'):
        open_target(workdir)


def test_too_few_images_are_refused(independent):
    few = dataclasses.replace(independent, non_members=images(5, 1))
    with pytest.raises(UserError, match='at least 20 and 40'):
        membership.run(few)
