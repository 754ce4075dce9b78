"""A finished run once more: what is done stays, what is gone or changed is made again."""

import json
import shutil

import numpy as np
import pytest
import tiny_runs

from dpaf_jax.pipeline.stages import samples
from dpaf_jax.pipeline.synthesize import STAGES, Pipeline
from dpaf_jax.privacy.plan import FIXED_ENTROPY
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.verification import verify


def read(path):
    return json.loads(path.read_text())


class TestAgain:
    def test_a_finished_run_is_done(self, run):
        assert Pipeline(run.config, run.workdir).is_done()

    def test_every_stage_once_more_changes_nothing(self, copied):
        pipeline = copied()
        before = tiny_runs.contents(pipeline.workdir.root)
        for stage in STAGES[:-1]:
            pipeline.run(stage)
        assert tiny_runs.contents(pipeline.workdir.root) == before

    def test_another_evaluation_or_number_of_samples_is_not_done(self, copied):
        assert not copied(evaluation__seeds=2).is_done()
        pipeline = copied(samples__num=30)
        assert not pipeline.is_done()
        with np.load(pipeline.run('samples')) as arrays:
            assert len(arrays['labels']) == 30

    def test_what_is_gone_and_follows_from_the_rest_is_made_again(self, copied):
        pipeline = copied()
        root = pipeline.workdir.root
        names = 'release/README.md', 'release/samples.png', 'report.html'
        before = [(root / name).read_bytes() for name in names]
        for name in names:
            (root / name).unlink()
            assert not pipeline.is_done()
        for stage in STAGES:
            pipeline.run(stage)
        assert pipeline.is_done() and verify(pipeline.workdir.release).passed
        assert (root / names[0]).read_bytes() == before[0]
        assert (root / names[1]).exists() and (root / names[2]).exists()

    def test_other_samples_are_judged_anew(self, copied):
        copied(samples__num=30).run('samples')
        pipeline = copied()
        assert not pipeline.is_done()
        with pytest.raises(
            UserError, match='is of other samples than .*evaluate again'
        ):
            pipeline.run('report')
        for stage in STAGES:
            pipeline.run(stage)
        assert pipeline.is_done()

    def test_a_report_needs_no_pictures_where_there_is_a_release(self, copied):
        """As data owners delete both, and then let it show what `verify` found."""
        shutil.rmtree(copied().workdir.private)
        open_fields = {'data__image_size': 0, 'data__channels': 0}
        pipeline = copied(data__source='npz:/gone', **open_fields)
        assert pipeline.config.data.shape == (8, 8, 1)

    def test_more_samples_than_memory_holds_are_refused(self, copied, monkeypatch):
        pipeline = copied(samples__num=1000)
        before = pipeline.workdir.samples.read_bytes()
        monkeypatch.setattr(samples, 'machine_memory', lambda: 127_999)
        with pytest.raises(
            UserError, match=r'samples\.num: asks for 1000, which take .* of memory'
        ):
            pipeline.run('samples')
        assert pipeline.workdir.samples.read_bytes() == before
        monkeypatch.setattr(samples, 'machine_memory', lambda: 128_000)
        pipeline.run('samples')

    def test_a_release_that_lost_a_file_is_restored_from_a_copy(self, copied):
        pipeline = copied()
        (pipeline.workdir.release / 'generator.safetensors').unlink()
        with pytest.raises(UserError, match=r'not whole any more .*Restore it from a'):
            pipeline.run('release')

    def test_damaged_samples_are_named(self, copied):
        pipeline = copied()
        content = pipeline.workdir.samples.read_bytes()
        pipeline.workdir.samples.write_bytes(content[:-200])
        with pytest.raises(UserError, match=r'synthetic\.npz: is damaged\. Delete it'):
            pipeline.run('samples')

    def test_private_data_may_go_once_all_is_done(self, copied):
        pipeline = copied(samples__num=30)
        shutil.rmtree(pipeline.workdir.private)
        assert 'prepare' not in pipeline.stages()
        for stage in ('plan', 'train', 'release', 'samples'):
            pipeline.run(stage)
        assert not (pipeline.workdir.private / 'data').exists()
        assert not pipeline.workdir.entropy.exists()


class TestFixedEntropy:
    def test_it_certifies_nothing_anywhere(self, result):
        folder, _, (release, report) = result
        assert FIXED_ENTROPY == 'none (fixed entropy)'
        assert release.privacy['guarantee'] == FIXED_ENTROPY
        assert report['privacy']['guarantee'] == FIXED_ENTROPY
        assert read(folder / 'a' / 'plan.json')['guarantee'] == FIXED_ENTROPY
        card = (folder / 'a' / 'release' / 'README.md').read_text()
        assert FIXED_ENTROPY in card and ', certified**' not in card
        page = (folder / 'a' / 'report.html').read_text()
        assert 'No privacy guarantee' in page and 'fixed entropy' in page

    def test_a_later_session_without_it_does_not_make_it_certified(self, result):
        folder, config, _ = result
        for stage in ('plan', 'release', 'evaluate', 'report'):
            Pipeline(config, folder / 'a').run(stage)
        for name in ('plan.json', 'release/privacy.json'):
            assert read(folder / 'a' / name)['guarantee'] == FIXED_ENTROPY
        report = read(folder / 'a' / 'report.json')
        assert report['privacy']['guarantee'] == FIXED_ENTROPY

    def test_the_same_entropy_gives_the_same_generator(self, result):
        folder, config, _ = result
        pipeline = Pipeline(config, folder / 'b', entropy=tiny_runs.ENTROPY)
        other = Pipeline(config, folder / 'c', entropy=bytes(32))
        for stage in ('prepare', 'plan', 'release'):
            pipeline.run(stage)
            other.run(stage)
        name = 'release/generator.safetensors'
        first = (folder / 'a' / name).read_bytes()
        assert (folder / 'b' / name).read_bytes() == first
        assert (folder / 'c' / name).read_bytes() != first

    def test_it_is_kept_in_no_file(self, result):
        folder, _, _ = result
        for path, content in tiny_runs.contents(folder / 'a').items():
            assert tiny_runs.ENTROPY not in content, path
            assert tiny_runs.ENTROPY.hex().encode() not in content, path
