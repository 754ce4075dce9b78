"""Tables: read by public bounds, a class histogram of its own budget, CSV out, AUROC."""

import csv
import json
import math
import shutil
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs
from dp_accounting import LaplaceDpEvent
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from dpaf_jax import data, methods
from dpaf_jax.attack import memorisation
from dpaf_jax.attack.target import open_target
from dpaf_jax.audit import class_histogram as histogram_audit
from dpaf_jax.audit import report, session, white_box
from dpaf_jax.audit.methods import g_pate as g_pate_audit
from dpaf_jax.config import DataConfig, EvaluationConfig, from_config_dict
from dpaf_jax.evaluation import tables
from dpaf_jax.evaluation.images import stated_classes
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.pipeline import decide
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import accounting, class_histogram, voting
from dpaf_jax.privacy.plan import CERTIFIED, PrivacyPlan, event_to_json
from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.export import in_units, write_csv
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.sample import run as sample
from dpaf_jax.training.workdir import Workdir
from dpaf_jax.verify import accountant
from dpaf_jax.verify.verification import verify

COLUMNS = 'age:0:100,bmi:10:60,dose:-1:1'


def rows_of(number=60, seed=0):
    """[N, 3] values that tell the label, [N] labels, one in four positive."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(number) % 4 == 0).astype(int)
    low, high = np.array([0, 10, -1]), np.array([100, 60, 1])
    shares = np.clip(
        0.3 + 0.4 * labels[:, None] + rng.normal(0, 0.1, (number, 3)), 0, 1
    )
    return low + (high - low) * shares, labels


def write(path, values, labels, names=('age', 'bmi', 'dose')):
    if path.suffix == '.npz':
        arrays = dict(zip(names, values.T, strict=True))
        np.savez(path, label=labels, **arrays)
    else:
        with path.open('w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(['id', *names, 'label'])
            for i, (row, label) in enumerate(zip(values, labels, strict=True)):
                writer.writerow([f'p{i}', *row, label])
    return f'table:{path}'


def config_dict(source, **changes):
    config = tiny_runs.load_config('g_pate', 'table')
    small = {
        'data__columns': COLUMNS,
        'g_pate__teachers': 6,
        'g_pate__batch_size': 4,
        'g_pate__width': 4,
        'g_pate__fc_width': 4,
        'g_pate__steps': 5,
        'g_pate__fakes': 4,
    }
    return tiny_runs.shrink(config, source, **small | changes)


def settings(source, **changes):
    return from_config_dict(config_dict(source, **changes))


def test_a_look_at_a_table_decides_delta(tmp_path):
    source = write(tmp_path / 'x.csv', *rows_of())
    open_ = from_config_dict(config_dict(source, privacy__delta=0.0), is_open=True)
    found = decide.look(open_)
    assert found.decided == {'data.num_examples': 40, 'privacy.delta': 2e-3}
    assert 'rows     ' in found.seen and 'sizes' not in found.seen
    assert 'class 1  1: ' in found.seen
    no_columns = config_dict(source, privacy__delta=0.0, data__columns='')
    with pytest.raises(UserError, match='A table needs columns'):
        decide.decided(from_config_dict(no_columns, is_open=True), Workdir(tmp_path))


# --- reading --------------------------------------------------------------------------


@pytest.mark.parametrize('suffix', ['.csv', '.npz'])
def test_rows_are_scaled_by_public_bounds_alone(tmp_path, suffix):
    values, labels = rows_of()
    values[5] = [
        250,
        -7,
        0.5,
    ]  # beyond the bounds: moved to them, and nobody else moves
    source = write(tmp_path / f'x{suffix}', values, labels)
    config = settings(source).data
    manifest = data.prepare(config, tmp_path / 'prepared')
    there = data.load(config, tmp_path / 'prepared')
    assert there.images.shape[1:] == (1, 3, 1) and there.images.dtype == np.float32
    assert manifest.num_examples + manifest.num_test == 60
    every = np.concatenate([there.images, there.test_images]).reshape(60, 3)
    cut = np.clip(values, [0, 10, -1], [100, 60, 1])
    expected = ((cut - [0, 10, -1]) / [100, 50, 2]).astype(np.float32)
    found = every[np.lexsort(every.T)]
    np.testing.assert_array_equal(found, expected[np.lexsort(expected.T)])


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda v, y: (v, y, ('age', 'bmi', 'other')), 'has no column dose'),
        (lambda v, y: (np.where(v > 50, np.nan, v), y), 'no finite number in column'),
        (lambda v, y: (v, y + 0.5), 'column label holds other than integers'),
        (lambda v, y: (v, y + 1), 'the label of row'),
    ],
)
@pytest.mark.parametrize('suffix', ['.csv', '.npz'])
def test_what_is_wrong_is_named_without_a_value(tmp_path, suffix, change, message):
    source = write(tmp_path / f'x{suffix}', *change(*rows_of()))
    with pytest.raises(UserError, match=message):
        data.prepare(settings(source).data, tmp_path / 'prepared')


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (b'age,bmi,dose,label\n', 'has no rows'),
        (b'age,bmi,dose,label\n1,2,\xe9,0\n', 'is not a table'),
        (b'age,bmi,dose,bmi,label\n1,2,3,4,0\n', 'has 2 columns called bmi'),
        (
            b'age,bmi,dose,label\n1,2,3,e9\n',
            'line 2 has no number in column label, the labels. Write the labels as int',
        ),
        (b'age,bmi,dose,label\n' + 200_000 * b'7', 'is not a table'),
    ],
)
def test_a_file_that_is_no_table_is_refused_without_its_text(
    tmp_path, content, message
):
    (tmp_path / 'x.csv').write_bytes(content)
    with pytest.raises(UserError, match=message) as refused:
        data.prepare(
            settings(f'table:{tmp_path / "x.csv"}').data, tmp_path / 'prepared'
        )
    assert 'e9' not in str(refused.value) and '777' not in str(refused.value)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'data__columns': 'age'}, r'config\.data\.columns: has the entry .age.'),
        ({'data__columns': 'age:1:0'}, r'config\.data\.columns: has the entry'),
        ({'data__columns': 'age:0:inf'}, r'config\.data\.columns: has the entry'),
        ({'data__columns': 'a:0:1,a:0:2'}, 'with a name twice'),
        ({'data__columns': ''}, 'A table needs columns'),
        ({'method': 'dpaf'}, r'config\.method: is .dpaf., which knows images alone'),
        ({'evaluation__wide_resnet': '16-2'}, r'wide_resnet: is .16-2., which knows'),
    ],
)
def test_a_config_that_does_not_fit_a_table_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        settings('table:x.csv', **changes)


def test_images_have_no_columns():
    with pytest.raises(UserError, match='only a table has them'):
        tiny.config(data__columns='age:0:1')


# --- the class histogram --------------------------------------------------------------


def test_the_histogram_has_its_own_laplace_budget():
    plan = methods.plan(settings('table:x.csv'), 50)
    classes, votes = plan.mechanisms
    assert (classes.law, classes.steps, classes.l2_sensitivity) == ('laplace', 1, 1)
    assert 1 / classes.noise_multiplier <= 0.0105  # with room for what delta buys
    alone = accounting.epsilon_pld(
        LaplaceDpEvent(classes.noise_multiplier), plan.delta - plan.overflow_delta
    )
    assert alone <= 0.01 and votes.law == 'gaussian'
    assert plan.epsilon <= 1 and plan.guarantee == CERTIFIED
    both = accounting.epsilon_pld(plan.dp_event, plan.delta)
    assert both == pytest.approx(plan.epsilon, abs=1e-4)
    assert PrivacyPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    queries = accountant.queries_of(event_to_json(plan.dp_event))
    lower, upper = accountant.epsilon_bounds(queries, plan.delta)
    assert lower <= plan.epsilon <= upper + 1e-4 and upper - lower <= 0.0105


def coins(step=0):
    return tiny.keys(fingerprint=f'{step:064x}').rng('classes', 0)


def law_of_counts(scale, reach):
    """P[g + 1/2] = P[-g - 1/2] for g = 0 .. reach - 1, as class_histogram.py states it."""
    return np.exp(-np.arange(reach) / scale) * -np.expm1(-1 / scale) / 2


@pytest.mark.parametrize('scale', [0.3, 1.0, 2.5])
def test_noise_of_counts_has_the_law_that_is_stated(scale):
    rng, reach = tiny.keys().rng('classes', 0), int(4 * scale) + 1
    noise = np.array([class_histogram.rounded_laplace(scale, rng) for _ in range(9999)])
    assert np.all(np.abs(noise) % 1 == 0.5)
    cell = np.minimum(np.abs(noise) - 0.5, reach).astype(int)  # the last: all beyond
    found = np.bincount(cell + (noise < 0) * (reach + 1), minlength=2 * reach + 2)
    one_side = np.append(law_of_counts(scale, reach), np.exp(-reach / scale) / 2)
    assert stats.chisquare(found, len(noise) * np.tile(one_side, 2)).pvalue > 1e-3


def test_counts_get_that_noise_from_the_runs_coins():
    counts, rng = np.array([7, 43]), coins()
    noise = [class_histogram.rounded_laplace(2.5, rng) for _ in counts]
    released = class_histogram.add_laplace(counts, 2.5, coins())
    assert np.array_equal(released, counts + noise)
    others = [class_histogram.add_laplace(counts, 2.5, coins(i)) for i in range(20)]
    assert len(np.unique(others, axis=0)) > 10


@pytest.mark.parametrize('scale', [0.3, 1.0, 2.5, 100.0])
def test_the_histogram_costs_no_more_than_the_laplace_mechanism(scale):
    """At every delta, and without any 1 / scale; the usual discrete law costs more."""
    half = law_of_counts(scale, int(40 * scale) + 40)
    usual = np.exp(-np.arange(len(half)) / scale) * np.tanh(1 / (2 * scale))
    laplace = privacy_loss_distribution.from_laplace_mechanism(
        scale, value_discretization_interval=1e-5
    )

    def excess(law):
        """Of delta over the Laplace mechanism's, for counts that differ by 1."""
        assert law.sum() == pytest.approx(1)
        assert np.abs(np.log(law[1:] / law[:-1])).max() <= 1 / scale * (1 + 1e-9)
        return max(
            np.sum(np.maximum(law[1:] - np.exp(epsilon) * law[:-1], 0))
            - laplace.get_delta_for_epsilon(epsilon)
            for epsilon in np.linspace(0, 1 / scale, 9)[:-1]
        )

    assert excess(np.append(half[::-1], half)) < 1e-6
    assert excess(np.append(usual[:0:-1], usual)) > 1e-6


class Numbers:
    """Coins that come as told; `asked` is below which numbers they were to be."""

    def __init__(self, *numbers):
        self.numbers, self.asked = list(numbers), []

    def integers(self, below):
        self.asked.append(below)
        return self.numbers.pop(0)


@pytest.mark.parametrize(
    ('numbers', 'expected'), [([3], True), ([2, 3], False), ([0, 2, 3], True)]
)
def test_a_coin_of_probability_exp_is_made_of_fractions(numbers, expected):
    """exp(-3/7) = 1 - x + x^2 / 2 - ...: below 3 of 7, then of 14, then of 21."""
    rng = Numbers(*numbers)
    assert class_histogram._exp_coin(3, 7, rng) == expected
    assert rng.asked == [7, 14, 21][: len(numbers)] and not rng.numbers


def test_a_run_without_privacy_counts():
    counts = np.array([7, 43])
    assert class_histogram.add_laplace(counts, 0.0, coins()).tolist() == [7.0, 43.0]


# --- the audit ------------------------------------------------------------------------


def audited(name, repetitions=300, devices=(1,)):
    """Kinds of check that fail for a mechanism of a table's run."""
    config = settings(
        'table:x.csv',
        g_pate__teacher_learning_rate=1.0,
        privacy__epsilon=2.0,
        data__noisy_prior=0.5,  # a histogram of epsilon 1
    )
    plan = tiny.plan(config)
    if name == 'classes':
        target = histogram_audit.audit_target(config, plan)
    else:
        (target,) = g_pate_audit.audit_targets(config, plan, devices)
    return tiny.audit_failures(target, plan, repetitions, samples=20_000)


@pytest.mark.slow
def test_the_audit_passes_both_mechanisms():
    assert not audited('classes', repetitions=2000) and not audited('votes')


@pytest.mark.parametrize('share', [0.5, pytest.param(0.9, marks=pytest.mark.slow)])
def test_a_histogram_with_too_little_noise_is_found_out(share):
    draw = class_histogram.rounded_laplace
    with mock.patch.object(
        class_histogram, 'rounded_laplace', lambda b, rng: draw(share * b, rng)
    ):
        caught = audited('classes', repetitions=2000)
    assert 'noise level' in caught
    # At half the noise the true epsilon is 2, and an attack shows more than 1.
    assert ('epsilon' in caught) == (share == 0.5)


def test_gaussian_noise_in_its_place_is_found_out():
    def gaussian(counts, scale, rng):
        return counts + scale * rng.normal(0, 2**0.5, len(counts))

    with mock.patch.object(class_histogram, 'add_laplace', gaussian):
        assert 'noise law' in audited('classes')


def test_a_record_that_counts_twice_is_found_out():
    counts = class_histogram.counts
    with mock.patch.object(class_histogram, 'counts', lambda *a: 2 * counts(*a)):
        assert {'sensitivity', 'epsilon'} <= audited('classes', repetitions=2000)


@pytest.mark.slow
def test_votes_that_count_twice_are_found_out():
    count = voting.count
    with mock.patch.object(
        voting, 'count', lambda votes, *a: count(jnp.concatenate([votes, votes]), *a)
    ):
        assert 'sensitivity' in audited('votes')


def test_coins_of_histogram_and_votes_are_noted():
    config = settings('table:x.csv')
    trace = g_pate_audit.trace(config, tiny.plan(config), tiny.keys())
    trace = histogram_audit.noted(trace, tiny.keys())
    assert len(trace.keys['classes']) == 1 and len(trace.keys['votes']) == 5
    expected = tiny.keys().lasting('classes').bit_generator.state['state']['key']
    np.testing.assert_array_equal(trace.keys['classes'][0], expected)


@pytest.mark.slow
def test_a_table_is_audited_whole(tmp_path):
    config = settings('table:x.csv', data__num_examples=50)
    with mock.patch.object(white_box, 'SAMPLES', 20_000):
        made = session.audit(config, devices=(1, 8), repetitions=100, runs=2, seed=3)
    assert not made.violations
    assert {f.mechanism for f in made.findings} >= {'classes', 'votes', 'release'}
    report.write_audit(made, tmp_path)
    assert 'laplace' in report.table(made)


# --- the whole ------------------------------------------------------------------------


def from_a_csv(folder):
    """A run by one command."""
    source = write(folder / 'x.csv', *rows_of())
    config = config_dict(source, g_pate__agreement=True)
    base = tiny_runs.load_config('g_pate', 'table')
    path = tiny_runs.ROOT / 'configs' / 'g_pate.py'
    # Whoever asks.
    with tiny_runs.accounting_grid(1e-3), tiny.quick_compilation():
        done = tiny_runs.call_main(
            f'--config={path}:table',
            f'--workdir={folder / "run"}',
            *tiny_runs.flags_of(config, base),
        )
    assert (done.code, done.err) == (0, '')


@pytest.fixture
def whole():
    """The folder of a whole run; for looking only."""
    return tiny_runs.once('from a csv', from_a_csv)[0] / 'run'


def samples_of(workdir):
    """The head, and the rows as numbers."""
    with (workdir / 'samples' / 'synthetic.csv').open() as file:
        head, *lines = list(csv.reader(file))
    return head, np.array(lines, float)


def test_weights_that_are_not_there_stop_a_run_on_rows_as_one_on_images(tmp_path):
    gone = str(tmp_path / 'none.pth')
    source = f'table:{tmp_path}/x.csv'
    config = config_dict(source, evaluation__inception_weights=gone)
    with pytest.raises(UserError, match='none.pth: cannot be read'):
        Pipeline(config, tmp_path / 'run').run('plan')


def test_one_command_goes_from_a_csv_to_a_release_that_holds(whole):
    with tiny_runs.accounting_grid(1e-3):
        assert verify(whole / 'release').passed
    card = (whole / 'release' / 'README.md').read_text()
    assert 'rows of a table with 3 columns' in card


def test_a_tables_figures_are_auroc_by_its_own_classifiers(whole):
    report = json.loads((whole / 'report.json').read_text())
    assert set(report['accuracy']['synthetic']) == set(tables.MODELS)
    assert 'AUROC' in (whole / 'report.html').read_text()


def test_samples_of_a_table_are_a_csv_within_its_bounds(whole):
    head, made = samples_of(whole)
    assert head == ['age', 'bmi', 'dose', 'label'] and len(made) == 40
    assert np.all(made[:, :3] >= [0, 10, -1]) and np.all(made[:, :3] <= [100, 60, 1])


def test_classes_of_samples_come_as_the_noisy_histogram_has_them(whole):
    prior = load_release(whole / 'release').prior
    assert sum(prior) == pytest.approx(1, rel=1e-5)
    share = np.mean(samples_of(whole)[1][:, 3])
    assert share == pytest.approx(prior[1], abs=1 / 40)


def test_what_the_teachers_agreed_on_is_in_one_place(whole):
    watched = [
        path.relative_to(whole).parts[0]
        for path in whole.rglob('*')
        if path.is_file() and b'nonprivate_' in path.read_bytes()
    ]
    assert watched == ['nonprivate']


def test_an_attack_compares_rows(whole, tmp_path):
    workdir = shutil.copytree(whole, tmp_path / 'run')
    found = memorisation.run(open_target(workdir))
    assert found['records'] == 'rows' and found['synthetic'] == 40
    pairs = workdir / 'nonprivate' / 'attacks' / 'closest_pairs_NOT_PRIVATE.csv'
    assert pairs.read_text().splitlines()[1] == 'distance,row,age,bmi,dose'


def test_further_rows_are_drawn_into_a_csv(whole, tmp_path):
    out = tmp_path / 'more.csv'
    drawn = tiny_runs.call(
        sample, 'sample', f'--release={whole / "release"}', '--num=7', f'--out={out}'
    )
    assert drawn.code == 0 and len(out.read_text().splitlines()) == 8
    progress, said = drawn.out.splitlines()
    assert progress.startswith('samples  row 7/7 ·')
    assert said == f'7 synthetic rows in {out}'


def test_the_release_of_a_table_is_not_judged_as_images(whole):
    with pytest.raises(UserError, match='is the release of a table'):
        stated_classes(str(whole / 'release'))


@pytest.mark.parametrize(
    'method',
    ['dp_merf', *(pytest.param(m, marks=pytest.mark.slow) for m in ('dp_hp', 'pearl'))],
)
def test_one_embedding_teaches_what_a_row_says(tmp_path, method):
    source = write(tmp_path / 'x.npz', *rows_of(3000))
    config = tiny_runs.shrink(
        tiny_runs.load_config(method, 'table'),
        source,
        data__columns=COLUMNS,
        samples__num=400,
        networks__fc_width=64,
        networks__z_dim=8,
        **{f'{method}__generator_steps': 100},
    )
    with tiny_runs.accounting_grid(1e-3):
        pipeline = Pipeline(config, tmp_path / 'run')
        for stage in pipeline.stages():
            pipeline.run(stage)
        assert verify(tmp_path / 'run' / 'release').passed
    found = json.loads((tmp_path / 'run' / 'report.json').read_text())
    found = found['accuracy']['synthetic']
    assert found['logistic_regression']['mean'] > 0.9


def test_auroc_is_of_the_positive_class_and_of_one_against_the_rest():
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    rows = (rng.normal(size=(300, 4)) + 2 * labels[:, None]).astype(np.float32)
    rows = rows[:, None, :, None]
    config = EvaluationConfig(
        seeds=1, epochs=1, batch_size=1, wide_resnet='', train_on_real=False
    )
    for k in (2, 3):
        some = Labelled(rows[labels < k], labels[labels < k])
        made = tables.evaluate(some, some, k, config)
        assert all(0.9 < made[name]['mean'] <= 1 for name in tables.MODELS)
    two = Labelled(rows[labels < 2], labels[labels < 2])
    swapped = two._replace(labels=1 - two.labels)
    wrong = tables.evaluate(swapped, two, 2, config)
    assert wrong['logistic_regression']['mean'] < 0.1
    assert math.isfinite(wrong['mlp']['std'])
    # A noisy histogram may leave one class: nothing to learn, no failure.
    one = Labelled(rows[labels == 1], labels[labels == 1])
    alone = tables.evaluate(one, two, 2, config)
    assert [alone[name]['values'] for name in tables.MODELS] == [[0.5]] * 4


@pytest.mark.parametrize(
    ('low', 'high'),
    [(1_700_000_000, 1_700_086_400), (48.1371, 48.1372), (0.12345678, 0.23456789)],
)
@pytest.mark.parametrize('suffix', ['csv', 'parquet'])
def test_rows_keep_their_digits_between_any_bounds(low, high, suffix, tmp_path):
    """Seven digits of the value itself told 87 of 1000 times of a day apart."""
    table = DataConfig(source='table:x.csv', columns=f't:{low!r}:{high!r}')
    rows = np.linspace(0, 1, 1000, dtype=np.float32).reshape(-1, 1, 1, 1)
    if suffix == 'csv':
        write_csv(tmp_path / 'x.csv', table, rows, np.zeros(1000, int))
        text = (tmp_path / 'x.csv').read_text().splitlines()[1:]
        found = np.array([float(line.partition(',')[0]) for line in text])
    else:
        found = in_units(table, rows)[:, 0]
    assert len(set(found.tolist())) == 1000
    assert low <= found.min() and found.max() <= high
    exact = low + (high - low) * rows.ravel().astype(np.float64)
    assert np.abs(found - exact).max() < 1e-6 * (high - low)
