"""The main job, stage by stage, on a few tiny images."""

import dataclasses
import json
import re
import shutil

import dp_accounting
import jax
import numpy as np
import pytest
import tiny_releases
import tiny_runs
from PIL import Image

import dpaf_jax
from dpaf_jax import methods
from dpaf_jax.attack import memorisation
from dpaf_jax.attack.target import open_target
from dpaf_jax.audit import report as audit_report
from dpaf_jax.audit.session import Audit
from dpaf_jax.evaluation import suite
from dpaf_jax.methods.embedding import plan as embedding_plan
from dpaf_jax.networks.perceptual import efficientnet
from dpaf_jax.networks.perceptual.inception import Weights
from dpaf_jax.pipeline.stages import prepare
from dpaf_jax.pipeline.synthesize import STAGES, Pipeline
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED, PrivacyPlan, event_from_json
from dpaf_jax.release.bundle import FILES, load_release, write_release
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training import fingerprint
from dpaf_jax.verify.verification import verify

PRIVACY_FIELDS = {
    'guarantee', 'epsilon', 'epsilon_rdp', 'delta', 'overflow_delta', 'neighbors',
    'num_examples', 'accountant', 'mechanisms', 'dp_event',
}  # fmt: skip
MECHANISM_FIELDS = {
    'name', 'kind', 'sampling_prob', 'l2_sensitivity', 'noise_multiplier', 'steps',
    'expected_batch_size', 'capacity',
}  # fmt: skip


def read(path):
    return json.loads(path.read_text())


class TestPlan:
    def test_it_has_the_schema_of_privacy_json_and_is_the_releases(self, run):
        plan = read(run.workdir / 'plan.json')
        assert set(plan) == PRIVACY_FIELDS
        for mechanism in plan['mechanisms']:
            assert set(mechanism) >= MECHANISM_FIELDS
        assert plan == read(run.workdir / 'release' / 'privacy.json')

    def test_the_releases_config_has_the_n_that_the_data_gave(self, run):
        assert run.config.data.num_examples == 0
        number = read(run.workdir / 'plan.json')['num_examples']
        config = read(run.workdir / 'release' / 'config.json')
        assert config['data']['num_examples'] == number > 0

    @pytest.mark.parametrize('stated', [0, 24])
    def test_training_has_n_stated_or_found(self, tmp_path, monkeypatch, stated):
        source = tiny_runs.write_npz(tmp_path / 'images.npz')
        config = tiny_runs.one_shot(source, data__num_examples=stated)
        pipeline = Pipeline(config, tmp_path / 'run')
        for stage in 'prepare', 'plan':
            pipeline.run(stage)
        seen = []
        monkeypatch.setattr(methods, 'train', seen.append)
        pipeline.run('train')
        assert seen[0].config.data.num_examples == seen[0].plan.num_examples > 0
        assert seen[0].config.has_few_records

    def test_epsilon_is_that_of_the_event_rebuilt_with_dp_accounting_alone(self, run):
        plan = read(run.workdir / 'plan.json')
        event = event_from_json(plan['dp_event'])
        accountant = dp_accounting.pld.PLDAccountant(
            dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
            value_discretization_interval=1e-2,  # as these runs were planned with
        )
        spent = accountant.compose(event).get_epsilon(
            plan['delta'] - plan['overflow_delta']
        )
        assert spent <= plan['epsilon'] <= min(spent + 1e-4, run.config.privacy.epsilon)
        assert plan['guarantee'] == CERTIFIED

    def test_it_needs_no_data_where_n_is_given(self, tmp_path, monkeypatch):
        def touched(*args, **options):
            raise AssertionError('the plan stage looked at data or devices')

        monkeypatch.setattr(prepare, 'prepare', touched)
        monkeypatch.setattr(prepare, 'load', touched)
        monkeypatch.setattr(parallel, 'pick_devices', touched)
        config = tiny_runs.one_shot('npz:/no/such/file', data__num_examples=24)
        plan = Pipeline(config, tmp_path).run('plan')
        assert plan.num_examples == 24 == read(tmp_path / 'plan.json')['num_examples']

    def test_with_a_public_n_it_comes_first(self, tmp_path):
        named = Pipeline(tiny_runs.one_shot('npz:x', data__num_examples=24), tmp_path)
        assert named.stages() == ('plan', 'prepare', *STAGES[2:])
        open_ = Pipeline(tiny_runs.one_shot('npz:x'), tmp_path)
        assert open_.stages() == STAGES

    def test_a_second_call_reads_what_the_first_one_wrote(self, tmp_path, monkeypatch):
        config = tiny_runs.one_shot('npz:x', data__num_examples=24)
        first = Pipeline(config, tmp_path).run('plan')
        monkeypatch.setattr(accounting, 'calibrate', None)
        assert Pipeline(config, tmp_path).run('plan') == first

    def test_before_training_another_config_plans_anew(self, tmp_path):
        config = tiny_runs.one_shot('npz:x', data__num_examples=24)
        first = Pipeline(config, tmp_path).run('plan')
        config.privacy.epsilon = 1.0
        second = Pipeline(config, tmp_path).run('plan')
        assert second.epsilon < 1 < first.epsilon
        assert read(tmp_path / 'plan.json')['epsilon'] == second.epsilon

    def test_other_code_plans_anew_until_training_begins(self, tmp_path, monkeypatch):
        """Its bounds may be others, and a plan's noise is for the bounds of its code."""
        config = tiny_runs.one_shot('npz:x', data__num_examples=24, method='dp_merf')
        old = Pipeline(config, tmp_path).run('plan')
        monkeypatch.setattr(fingerprint, 'code_hash', lambda: 'other code')
        monkeypatch.setattr(fingerprint, 'AS_IMPORTED', 'other code')
        monkeypatch.setattr(embedding_plan, 'ROW_BOUND', 2.0)
        new = Pipeline(config, tmp_path).run('plan')
        bounds = [made.mechanisms[0].l2_sensitivity for made in (old, new)]
        assert bounds == [1.0, 2.0]
        monkeypatch.undo()
        (tmp_path / 'private' / 'fingerprint.json').write_text('{}')
        assert Pipeline(config, tmp_path).run('plan') == new


class TestSecrets:
    def test_the_private_folder_is_the_owners_alone(self, run):
        assert run.private_modes == (0o700, 0o600)
        assert tiny_runs.mode(run.workdir / 'private') == 0o700

    def test_the_entropy_is_gone_after_the_release(self, run):
        assert len(run.entropy) == 32
        assert not (run.workdir / 'private' / 'entropy').exists()

    def test_no_file_of_the_run_contains_the_entropy(self, run):
        names = set()
        for path, content in tiny_runs.contents(run.workdir).items():
            names.add(path.name)
            assert run.entropy not in content, path
            assert run.entropy.hex().encode() not in content.lower(), path
            assert repr(run.entropy).encode() not in content, path
            digits = ', '.join(str(byte) for byte in run.entropy[:8])
            assert digits.encode() not in content, path
        assert {'history.jsonl', 'report.html', 'plan.json', 'README.md'} <= names
        assert any('tfevents' in name for name in names)

    def test_nothing_outside_private_knows_the_data(self, run):
        checksum = read(run.workdir / 'private' / 'fingerprint.json')['data checksum']
        path = run.config.data.source.partition(':')[2]
        for file, content in tiny_runs.contents(run.workdir).items():
            if 'private' not in file.relative_to(run.workdir).parts:
                assert checksum.encode() not in content, file
                assert path.encode() not in content, file

    def test_no_real_image_is_outside_private(self, run):
        with np.load(run.config.data.source.partition(':')[2]) as arrays:
            real = [image.tobytes() for image in arrays['train_x']]
        for file, content in tiny_runs.contents(run.workdir).items():
            if 'private' not in file.relative_to(run.workdir).parts:
                assert not any(image in content for image in real), file


class TestReport:
    def test_accuracies_are_mean_std_and_values_of_each_model(self, run):
        report = read(run.workdir / 'report.json')
        models = report['accuracy']['synthetic']
        assert set(models) == {'cnn', 'logistic_regression'}
        for figures in models.values():
            assert {'mean', 'std', 'values'} <= set(figures)
            assert len(figures['values']) == run.config.evaluation.seeds
            assert figures['mean'] == pytest.approx(np.mean(figures['values']))

    def test_it_has_the_wall_seconds_of_every_stage_before_it(self, run):
        seconds = read(run.workdir / 'report.json')['wall_seconds']
        assert set(seconds) >= set(STAGES) - {'report'}
        assert all(value >= 0 for value in seconds.values()) and seconds['train'] > 0

    def test_it_states_the_releases_privacy(self, run):
        report = read(run.workdir / 'report.json')
        assert report['privacy'] == read(run.workdir / 'release' / 'privacy.json')
        page = (run.workdir / 'report.html').read_text()
        assert 'Measured on real test data: not covered by ε' in page
        assert 'No privacy guarantee' not in page

    def test_its_curves_are_those_of_both_phases(self, run):
        rows = read(run.workdir / 'report.json')['history']
        phases = ['gan']
        if run.config.dpaf.classifier.private != 'none':
            phases = ['classifier', 'gan']
        assert list(dict.fromkeys(row['phase'] for row in rows)) == phases
        spent = [row['epsilon_spent'] for row in rows]
        assert spent == sorted(spent)
        assert 0 < spent[-1] <= read(run.workdir / 'plan.json')['epsilon']

    def test_training_on_real_images_goes_to_nonprivate_only(self, one_shot, result):
        folder = one_shot.workdir / 'nonprivate'
        assert tiny_runs.mode(folder) == 0o700
        real = read(folder / 'evaluation.json')['real']
        assert set(real) == {'cnn', 'logistic_regression'}
        assert set(read(one_shot.workdir / 'report.json')['accuracy']) == {'synthetic'}
        other, *_ = result  # which did not ask for it
        assert (other / 'a' / 'report.json').exists()
        assert not (other / 'a' / 'nonprivate').exists()

    def test_training_on_real_images_does_not_tell_how_many_there_are(
        self, copied, capsys, caplog
    ):
        """Its steps and the features that it compares say so; those of the samples may."""
        caplog.set_level('INFO')
        copied(evaluation__seeds=2).run('evaluate')
        assert capsys.readouterr().out.count('done in') == 1
        assert len([r for r in caplog.messages if 'of each side' in r]) <= 1

    def test_nor_are_the_samples_judged_by_as_many(self, copied, monkeypatch):
        sizes = []

        def alike(settings, *sides):
            sizes.append([len(side.labels) for side in sides])
            return settings

        monkeypatch.setattr(suite, 'alike', alike)
        pipeline = copied(evaluation__seeds=2)
        pipeline.run('evaluate')
        manifest = read(pipeline.workdir.private / 'data' / 'manifest.json')
        assert sizes == [[pipeline.config.samples.num, manifest['num_test']]]

    def test_it_is_asked_for_anew_when_the_private_folder_is_gone(self, copied):
        """The report advises to delete it."""
        pipeline = copied(evaluation__seeds=2)
        shutil.rmtree(pipeline.workdir.private / 'data')
        for stage in ('prepare', 'evaluate'):
            pipeline.run(stage)
        accuracy = read(pipeline.workdir.evaluation)['accuracy']['synthetic']
        assert len(accuracy['cnn']['values']) == 2

    def test_a_ceiling_that_is_lost_is_measured_again(self, copied):
        pipeline = copied(evaluation__train_on_real=True)
        pipeline.run('evaluate')
        pipeline.run('report')
        ceiling = pipeline.workdir.nonprivate / 'evaluation.json'
        assert pipeline.is_done() and ceiling.exists()
        ceiling.unlink()
        assert not pipeline.is_done()
        pipeline.run('evaluate')
        assert ceiling.exists()

    def test_images_too_small_for_a_classifier_are_refused_before_a_run(self, tmp_path):
        small = {'evaluation__suite': 'slow', 'data__image_size': 4}
        config = tiny_runs.one_shot('digits', **small)
        with pytest.raises(UserError, match='suite slow: .* 8 x 8, and these have 4'):
            Pipeline(config, tmp_path).run('plan')

    def test_samples_of_another_size_are_not_taken_for_those_asked_for(self, copied):
        pipeline = copied(samples__num=30)
        before = read(pipeline.workdir.evaluation)
        with pytest.raises(UserError, match='asks for 30, and .* has 40'):
            pipeline.run('evaluate')
        assert read(pipeline.workdir.evaluation) == before

    def test_a_report_of_other_settings_is_refused(self, copied):
        with pytest.raises(UserError, match='is of other settings'):
            copied(evaluation__seeds=3).run('report')

    def test_a_run_is_not_done_while_its_report_is_of_another_evaluation(self, copied):
        assert copied().is_done()
        pipeline = copied(evaluation__epochs=2)
        pipeline.run('evaluate')
        assert not pipeline.is_done()
        pipeline.run('report')
        assert pipeline.is_done()

    def test_what_could_not_be_measured_is_measured_once_it_can(
        self, copied, monkeypatch
    ):
        """As the notice about what is not installed advises."""
        pipeline = copied(evaluation__fidelity_images=100)
        monkeypatch.setattr(efficientnet, 'is_installed', lambda: False)
        pipeline.run('evaluate')
        assert not read(pipeline.workdir.evaluation)['fidelity']
        pipeline.run('report')
        assert pipeline.is_done()
        monkeypatch.setattr(efficientnet, 'is_installed', lambda: True)
        assert not pipeline.is_done()
        seen = []
        monkeypatch.setattr('dpaf_jax.evaluation.fidelity.least', lambda k: 1)
        monkeypatch.setattr(
            'dpaf_jax.evaluation.fidelity.evaluate',
            lambda *args: seen.append(args) or {'recall': 0.5},
        )
        pipeline.run('evaluate')
        assert seen and read(pipeline.workdir.evaluation)['fidelity']['recall'] == 0.5

    def test_fid_is_measured_once_its_weights_are_named(self, copied, monkeypatch):
        digest = 'abc'
        monkeypatch.setattr(
            'dpaf_jax.evaluation.suite.inception_weights',
            lambda config: config.inception_weights and Weights({}, digest),
        )
        monkeypatch.setattr('dpaf_jax.evaluation.fidelity.least', lambda k: 1)
        monkeypatch.setattr(
            'dpaf_jax.evaluation.fidelity.evaluate',
            lambda *args: {
                'fid_other_weights': 31.5,
                'weights': args[0].weights.sha256,
            },
        )
        few = {'evaluation__fidelity_images': 4}
        pipeline = copied(**few, evaluation__inception_weights='/home/ann/w.pth')
        assert not pipeline.is_done()
        pipeline.run('evaluate')
        pipeline.run('report')
        assert pipeline.is_done() and copied(**few).is_done()
        found = read(pipeline.workdir.report)['fidelity']
        assert found == {'fid_other_weights': 31.5, 'weights': 'abc'}
        for path in pipeline.workdir.release.iterdir():
            assert b'/home/ann' not in path.read_bytes()
            assert b'31.5' not in path.read_bytes()
        digest = 'of another file'
        assert not pipeline.is_done()

    def test_weights_that_are_not_there_stop_a_run_before_it_trains(
        self, one_shot, tmp_path
    ):
        config = one_shot.config.copy_and_resolve_references()
        config.evaluation.inception_weights = str(tmp_path / 'none.pth')
        with pytest.raises(UserError, match='none.pth: cannot be read'):
            Pipeline(config, tmp_path / 'run').run('prepare')

    def test_a_run_without_evaluation_has_a_report_without_accuracies(self, copied):
        pipeline = copied()
        (pipeline.workdir.root / 'evaluation.json').unlink()
        assert pipeline.run('report')['accuracy'] == {}


class TestWhatWasChecked:
    def test_nothing_was_unless_a_command_was_run(self, run):
        checked = read(run.workdir / 'report.json')['checked']
        assert checked == {'verify': None, 'audit': None, 'attacks': {}}

    def test_the_verifiers_outcome_is_left_in_the_run_and_read_by_its_report(
        self, copied
    ):
        pipeline = copied()
        done = tiny_releases.call(pipeline.workdir.release)
        assert done.code == 0, done.out
        assert str(pipeline.workdir.verification) in done.out
        found = pipeline.run('report')['checked']['verify']
        assert found['passed'] and found['current']
        assert f'verdict: {found["verdict"]}\n' in done.out
        assert found['when'].endswith('UTC')
        assert found['when'] in (pipeline.workdir.root / 'report.html').read_text()
        card = pipeline.workdir.release / 'README.md'
        card.write_text(card.read_text() + 'Best of 90 runs.\n')
        assert not pipeline.run('report')['checked']['verify']['current']
        assert tiny_releases.call(pipeline.workdir.release).code == 1
        found = pipeline.run('report')['checked']['verify']
        assert found['current'] and not found['passed']

    @pytest.mark.parametrize('name', ['verification.json', 'audit/audit.json'])
    def test_an_outcome_that_says_nothing_is_of_nothing_here(self, copied, name):
        pipeline = copied()
        path = pipeline.workdir.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"x": 1}')
        kind = 'verify' if name.startswith('v') else 'audit'
        found = pipeline.run('report')['checked'][kind]
        assert not found['passed'] and not found['current']

    def test_an_audit_counts_for_the_plan_that_it_was_of(self, copied):
        pipeline = copied()
        plan = PrivacyPlan.from_json(read(pipeline.workdir.plan))
        for number in (plan.num_examples, plan.num_examples + 1):
            of = dataclasses.replace(plan, num_examples=number)
            made = Audit(plan=of, findings=[], settings={})
            audit_report.write_audit(made, pipeline.workdir.root / 'audit')
            found = pipeline.run('report')['checked']['audit']
            assert found['verdict'] == audit_report.verdict(made) and found['passed']
            assert found['current'] == (number == plan.num_examples)

    def test_an_attacks_result_is_found(self, copied):
        pipeline = copied()
        memorisation.run(open_target(pipeline.workdir.root))
        (found,) = pipeline.run('report')['checked']['attacks'].items()
        assert found[0] == 'memorisation' and found[1]['when'].endswith('UTC')
        page = (pipeline.workdir.root / 'report.html').read_text()
        warning = page.index('made from real training images: not covered by ε')
        assert warning < page.index('Attack: memorisation')
        assert found[1]['current']

    def test_an_attack_on_another_generator_is_out_of_date(self, copied):
        pipeline = copied()
        memorisation.run(open_target(pipeline.workdir.root))
        release = pipeline.workdir.release
        trained = load_release(release)
        other = jax.tree.map(lambda array: array + 1, trained.params)
        shutil.rmtree(release)
        write_release(
            release, trained.config, PrivacyPlan.from_json(trained.privacy), other
        )
        found = pipeline.run('report')['checked']['attacks']['memorisation']
        assert not found['current']
        page = (pipeline.workdir.root / 'report.html').read_text()
        assert 'OUT OF DATE' in page


class TestTestFigures:
    def test_the_release_has_none(self, run):
        accuracy = read(run.workdir / 'report.json')['accuracy']['synthetic']
        card = (run.workdir / 'release' / 'README.md').read_text()
        assert 'Accuracy' not in card
        assert not re.search(rf'\b{accuracy["cnn"]["mean"]:.3f}\b', card)

    def test_they_enter_the_card_where_the_test_set_is_public(self, copied):
        pipeline = copied(release__test_set_is_public=True)
        assert not pipeline.is_done()
        accuracy = pipeline.run('evaluate')
        card = (pipeline.workdir.release / 'README.md').read_text()
        mean = accuracy['synthetic']['cnn']['mean']
        assert '## Accuracy on the public test set' in card
        assert f'| cnn | {mean:.3f} |' in card
        files = {path.name for path in pipeline.workdir.release.iterdir()}
        assert files == set(FILES)

    def test_the_releases_config_says_how_they_were_made(self, copied):
        pipeline = copied(release__test_set_is_public=True, evaluation__seeds=2)
        before = read(pipeline.workdir.release / 'config.json')
        pipeline.run('evaluate')
        after = read(pipeline.workdir.release / 'config.json')
        assert before['evaluation'].pop('seeds') == 1
        assert after['evaluation'].pop('seeds') == 2
        assert after['release'].pop('test_set_is_public')
        assert not before['release'].pop('test_set_is_public')
        assert after == before
        found = verify(pipeline.workdir.release)
        assert found.passed, [str(check) for check in found.checks]


def test_synthesize_returns_the_release_and_the_report(one_shot):
    release, report = dpaf_jax.synthesize(one_shot.config, one_shot.workdir)
    images, labels = release.sample(10, seed=1)
    assert images.shape == (10, 8, 8, 1) and sorted(labels) == [0] * 5 + [1] * 5
    assert report == read(one_shot.workdir / 'report.json')


def test_the_pictures_are_of_the_samples(run):
    picture = Image.open(run.workdir / 'release' / 'samples.png')
    assert picture.size[0] > 8 and picture.size[1] > 2 * 8


def test_an_unknown_stage_is_refused(tmp_path):
    pipeline = Pipeline(tiny_runs.one_shot('npz:x'), tmp_path)
    with pytest.raises(UserError, match="--stage: is 'bake'. Choose all or prepare"):
        pipeline.run('bake')
