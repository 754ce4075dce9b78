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

from dpaf_jax.attack import membership, memorisation, plots
from dpaf_jax.attack.distances import nearest
from dpaf_jax.attack.registry import ATTACKS
from dpaf_jax.attack.roc import Roc, permitted, permitted_tpr
from dpaf_jax.attack.target import Target, open_target
from dpaf_jax.config import Column
from dpaf_jax.runtime.errors import UserError

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
    found = {name: roc.auc() for name, roc in membership.attack(memorising).items()}
    assert set(found) == {'gan-leaks', 'gan-leaks calibrated', 'monte-carlo', 'logan'}
    assert found['gan-leaks'] > 0.99 and found['gan-leaks calibrated'] > 0.99
    assert found['monte-carlo'] > 0.95
    # A discriminator of random pixels has nothing to learn but the images themselves.
    assert found['logan'] > 0.8


def test_no_membership_attack_finds_anything_in_independent_images(independent):
    for roc in membership.attack(independent).values():
        assert abs(roc.auc() - 0.5) < 0.12  # 3.5 standard errors
        assert roc.tpr(0.01) < 0.1


def test_copies_are_counted_and_near(memorising, independent):
    found = memorisation.run(
        dataclasses.replace(memorising, synthetic=images(NUMBER, 1))
    )
    assert found['exact_copies'] == NUMBER and found['nearer_to_train']['value'] == 1
    found = memorisation.run(memorising)
    assert found['distance_ratio_train_to_test']['99 %'] < 0.1
    found = memorisation.run(independent)
    assert found['exact_copies'] == 0
    share = found['nearer_to_train']
    assert share['low'] < 0.5 < share['high']


def test_a_set_that_is_larger_is_not_taken_for_nearer(independent):
    # Nearest of 200 against nearest of 20 at equal sizes of neither: a bias of its own.
    few = dataclasses.replace(independent, non_members=images(20, 5))
    share = memorisation.run(few)['nearer_to_train']
    assert share['low'] < 0.5 < share['high']


def test_nearest_is_the_nearest(monkeypatch):
    monkeypatch.setattr('dpaf_jax.attack.distances.CHUNK', 7)
    queries, base = images(20, 1), images(33, 2)
    apart = (queries[:, None].astype(float) - base[None]).reshape(20, 33, -1) / 255
    exact = np.linalg.norm(apart, axis=2)
    found = nearest(queries, base)
    np.testing.assert_array_equal(found.place, exact.argmin(axis=1))
    np.testing.assert_allclose(found.distance, exact.min(axis=1), rtol=1e-5)
    assert np.all(nearest(base, base).distance == 0)


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
    aucs = {name: roc.auc() for name, roc in membership.attack(copies).items()}
    assert min(aucs['gan-leaks'], aucs['gan-leaks calibrated']) > 0.99
    assert aucs['monte-carlo'] > 0.9
    found = memorisation.run(copies)
    assert found['exact_copies'] == NUMBER and found['nearer_to_train']['value'] == 1
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
    for roc in membership.attack(free).values():
        assert abs(roc.auc() - 0.5) < 0.12  # 3.5 standard errors
    share = memorisation.run(free)['nearer_to_train']
    assert share['low'] < 0.5 < share['high']


def test_a_table_has_no_images_to_recover(tmp_path):
    with pytest.raises(UserError, match='Choose membership or memorisation'):
        ATTACKS['gradient_inversion'].run(table_target(tmp_path, rows(9, 3)))


# --- figures ---------------------------------------------------------------------------


def test_roc_by_hand():
    roc = Roc(np.array([3.0, 1.0, 1.0]), np.array([2.0, 1.0, 0.0, 0.0]))
    assert roc.auc() == pytest.approx((4 + 2.5 + 2.5) / 12)
    assert roc.tpr(0.01) == pytest.approx(1 / 3)  # above all non-members
    assert roc.tpr(0.5) == 1  # above the third
    assert roc.tpr(0.25) == pytest.approx(1 / 3)  # ties with the second do not count
    assert Roc(np.zeros(5), np.zeros(5)).tpr(0.5) == 0


def test_interval_covers_the_truth():
    truth = 0.5 * (1 + math.erf(1 / 2))  # AUC of N(1, 1) against N(0, 1)
    hits = 0
    for seed in range(40):
        coins = np.random.default_rng(seed)
        roc = Roc(coins.normal(1, 1, 300), coins.normal(0, 1, 300))
        interval = roc.summary(seed)['auc']
        hits += interval['low'] < truth < interval['high']
    assert hits >= 33  # of 40 at 95 %; a standard error instead of two: 27


def test_permitted_rates_are_those_of_randomised_response():
    epsilon = math.log(3)
    # (epsilon, 0): its ROC has one corner, at FPR 1/4 and TPR 3/4.
    assert permitted_tpr(0.25, epsilon, 0) == pytest.approx(0.75)
    assert permitted_tpr(0.01, epsilon, 1e-5) == pytest.approx(0.03001)
    assert permitted(epsilon, 0)['auc'] == pytest.approx(0.75, abs=1e-3)
    assert permitted(1e-6, 0)['auc'] == pytest.approx(0.5, abs=1e-3)
    assert permitted(800.0, 0)['tpr_at_fpr_0.001'] == 1


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
    assert stat.S_IMODE(real.folder.stat().st_mode) == 0o700
    for name in ('membership', 'memorisation'):
        content = json.loads((real.folder / f'{name}_NOT_PRIVATE.json').read_text())
        assert content['warning'].startswith('NOT PRIVATE')
    assert found['permitted']['auc'] <= 1
    picture = Image.open(real.folder / 'closest_pairs_NOT_PRIVATE.png')
    assert picture.getpixel((picture.width // 2, 1))[0] > 150  # the red banner


def test_a_run_that_certifies_nothing_permits_anything(independent):
    privacy = {'guarantee': 'none (as published)', 'epsilon': None, 'delta': 1e-5}
    found = membership.run(dataclasses.replace(independent, privacy=privacy))
    assert found['permitted'] is None
    assert 'permitted: anything' in membership.table(found)


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
    with pytest.raises(UserError, match='at least 10 and 20'):
        membership.run(few)


# --- plots -----------------------------------------------------------------------------


def test_a_curve_lies_where_its_points_are():
    x, y = plots.Axis('x', 1e-4, 1, log=True), plots.Axis('y', 0, 1)
    page = plots.line_plot(
        [plots.Curve('dot', [1e-2], [0.5], '#ff0000', 'dots')], '', x, y
    )
    red = np.argwhere(
        np.all(np.abs(np.asarray(page).astype(int) - (255, 0, 0)) < 90, axis=2)
    )
    middle = plots.LEFT + (plots.WIDTH - plots.LEFT - plots.RIGHT) / 2
    assert any(abs(column - middle) < 3 for _, column in red)
