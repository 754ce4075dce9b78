"""The release: exactly what may be handed out, whole, and refused when it is not."""

import dataclasses
import json
import math
import pathlib
import shutil

import dp_accounting
import jax
import numpy as np
import pytest
import safetensors.numpy
import tiny_runs

from dpaf_jax.config import from_config_dict
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.release import bundle as releases
from dpaf_jax.release import drawing
from dpaf_jax.release.bundle import load_release, write_release
from dpaf_jax.release.drawing import Release, balanced_labels
from dpaf_jax.release.samplers.registry import make_sampler
from dpaf_jax.runtime.errors import UserError

FILES = {
    'generator.safetensors',
    'config.json',
    'privacy.json',
    'README.md',
    'samples.png',
}


@pytest.fixture(params=['one_shot', pytest.param('canonical', marks=pytest.mark.slow)])
def made(request) -> pathlib.Path:
    return tiny_runs.finished(request.param).workdir / 'release'


@pytest.fixture
def copy(tmp_path) -> pathlib.Path:
    """A release to damage."""
    source = tiny_runs.finished('one_shot').workdir / 'release'
    return shutil.copytree(source, tmp_path / 'release')


def rewrite(path: pathlib.Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class TestContent:
    def test_the_files_are_exactly_these(self, made):
        assert {path.name for path in made.iterdir()} == FILES == set(releases.FILES)

    def test_the_parameters_are_the_generators_and_nothing_else(self, made):
        names = set(safetensors.numpy.load_file(made / 'generator.safetensors'))
        config = load_release(made).config
        shapes = jax.eval_shape(make_sampler(config).init, jax.random.key(0))
        paths = jax.tree_util.tree_flatten_with_path(shapes)[0]
        assert names == {'/'.join(key.key for key in path) for path, _ in paths}

    def test_the_file_of_parameters_has_no_metadata(self, made):
        with safetensors.safe_open(made / 'generator.safetensors', 'numpy') as file:
            assert not file.metadata()

    def test_no_discriminator_optimiser_key_or_path_is_in_it(self, made):
        forbidden = ('optimizers', 'adam/', 'mu/', 'head/', 'conv1/', 'entropy')
        content = b''.join(path.read_bytes() for path in made.iterdir())
        for word in (*forbidden, str(made.parent.parent), 'images.npz', '/tmp/'):
            assert word.encode() not in content

    def test_the_config_has_no_path_of_the_owner(self, made):
        data = json.loads((made / 'config.json').read_text())['data']
        assert (data['source'], data['cache'], data['annotations']) == ('npz', '', '')

    def test_epsilon_follows_from_privacy_json_alone(self, made):
        privacy = json.loads((made / 'privacy.json').read_text())
        assert privacy['guarantee'] == 'certified'

        def rebuild(fields):
            cls = getattr(dp_accounting, fields['class'])
            return cls(
                **{name: value(v) for name, v in fields.items() if name != 'class'}
            )

        def value(v):
            if isinstance(v, list):
                return [value(item) for item in v]
            return rebuild(v) if isinstance(v, dict) else v

        accountant = dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL
        )
        accountant.compose(rebuild(privacy['dp_event']))
        delta = privacy['delta'] - privacy['overflow_delta']
        # Our orders are integers only: never better than the default ones.
        assert accountant.get_epsilon(delta) <= privacy['epsilon_rdp'] + 1e-6
        assert privacy['epsilon'] < privacy['epsilon_rdp'] < 2 * privacy['epsilon']

    def test_the_card_states_what_privacy_json_states(self, made):
        privacy = json.loads((made / 'privacy.json').read_text())
        card = (made / 'README.md').read_text()
        assert f'**epsilon = {privacy["epsilon"]} at delta = 1e-05, certified**' in card
        assert f'N = {privacy["num_examples"]}, public' in card
        assert privacy['neighbors'] in card


class TestWrite:
    @pytest.fixture
    def arguments(self):
        made = tiny_runs.finished('one_shot')
        plan = Pipeline(made.config, made.workdir).run('plan')
        params = load_release(made.workdir / 'release').params
        return from_config_dict(made.config), plan, params

    @pytest.mark.parametrize('part', ['save_png', 'sample_grid'])
    def test_a_crash_in_the_middle_leaves_none(
        self, arguments, tmp_path, monkeypatch, part
    ):
        def crash(*args, **options):
            raise OSError(28, 'No space left on device')

        with monkeypatch.context() as patch:
            patch.setattr(releases.pictures, part, crash)
            with pytest.raises(OSError):
                write_release(tmp_path / 'release', *arguments)
        assert not (tmp_path / 'release').exists()
        write_release(tmp_path / 'release', *arguments)  # what was left is no obstacle
        assert [path.name for path in tmp_path.iterdir()] == ['release']
        assert {path.name for path in (tmp_path / 'release').iterdir()} == FILES

    def test_what_is_written_is_read_back(self, arguments, tmp_path):
        written = write_release(tmp_path / 'release', *arguments)
        read = load_release(tmp_path / 'release')
        assert (read.config, read.privacy) == (written.config, written.privacy)
        jax.tree.map(np.testing.assert_array_equal, read.params, arguments[2])

    def test_a_generator_that_diverged_is_not_released(self, arguments, tmp_path):
        config, plan, params = arguments
        params = jax.tree.map(np.copy, params)
        jax.tree.leaves(params)[0].flat[0] = np.nan
        with pytest.raises(FloatingPointError, match='diverged'):
            write_release(tmp_path / 'release', config, plan, params)
        assert not (tmp_path / 'release').exists()


class TestLoad:
    @pytest.mark.parametrize(
        'name', ['generator.safetensors', 'config.json', 'privacy.json']
    )
    def test_a_missing_file_is_named(self, copy, name):
        (copy / name).unlink()
        with pytest.raises(UserError, match=rf'^{copy / name}: is missing'):
            load_release(copy)

    def test_a_folder_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(UserError, match=f'^{tmp_path}/no/generator'):
            load_release(tmp_path / 'no')

    @pytest.mark.parametrize(
        'name', ['generator.safetensors', 'config.json', 'privacy.json']
    )
    @pytest.mark.parametrize('damage', [b'', b'\x00\xff\x00', b'[1, 2]'])
    def test_a_damaged_file_is_named(self, copy, name, damage):
        (copy / name).write_bytes(damage)
        with pytest.raises(UserError, match=rf'^{copy / name}: is damaged \('):
            load_release(copy)

    @pytest.mark.parametrize('name', ['guarantee', 'epsilon', 'num_examples'])
    def test_a_statement_that_lacks_what_cards_say_is_damaged(self, copy, name):
        stated = json.loads((copy / 'privacy.json').read_text())
        del stated[name]
        (copy / 'privacy.json').write_text(json.dumps(stated))
        with pytest.raises(UserError, match=f'is damaged .it states no {name}'):
            load_release(copy)

    def test_a_truncated_generator_is_named(self, copy):
        path = copy / 'generator.safetensors'
        path.write_bytes(path.read_bytes()[:-50])
        with pytest.raises(UserError, match=rf'^{path}: is damaged \('):
            load_release(copy)

    @pytest.mark.parametrize(
        ('section', 'field', 'value'),
        [
            ('networks', 'z_dim', 5),
            ('networks', 'layers', 'C1-C1-C1'),
            ('data', 'channels', 3),
        ],
    )
    def test_a_generator_that_does_not_fit_the_config_is_refused(
        self, copy, section, field, value
    ):
        fields = json.loads((copy / 'config.json').read_text())
        fields[section][field] = value
        (copy / 'config.json').write_text(json.dumps(fields))
        with pytest.raises(UserError, match='does not fit config.json beside it'):
            load_release(copy)

    def test_a_runs_folder_is_told_where_its_release_is(self, copy):
        with pytest.raises(UserError, match=rf"is a run's folder: give {copy}[.]"):
            load_release(copy.parent)

    def test_a_config_of_another_version_is_refused_by_field(self, copy):
        rewrite(copy / 'config.json', unheard_of=1)
        with pytest.raises(UserError, match='unheard_of: no such field'):
            load_release(copy)
        rewrite(copy / 'config.json', version='9.8.7')
        with pytest.raises(UserError, match=r'version: is 9\.8\.7, here .*unheard_of'):
            load_release(copy)


class TestSamples:
    @pytest.fixture
    def release(self) -> Release:
        return load_release(tiny_runs.finished('one_shot').workdir / 'release')

    def test_the_same_seed_gives_the_same_images(self, release):
        first, labels = release.sample(7, seed=3)
        again, _ = release.sample(7, seed=3)
        other, _ = release.sample(7, seed=4)
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
        assert (first.dtype, first.shape, labels.dtype) == (
            np.uint8,
            (7, 8, 8, 1),
            np.int32,
        )

    def test_without_a_seed_images_differ_each_time(self, release):
        assert (release.sample(7)[0] != release.sample(7)[0]).any()

    def test_labels_and_priors_may_be_arrays_of_any_number_type(self, release):
        labels = np.array([0.0, 1.0])
        assert len(np.concatenate(list(release.generate(labels, seed=1)))) == 2
        _, labels = release.sample(4, prior=np.array([0.0, 1.0]))
        assert labels.tolist() == [1, 1, 1, 1]

    def test_images_of_one_label_differ(self, release):
        images, labels = release.sample(600, seed=0)
        of_first = images[labels == 0]
        assert len({image.tobytes() for image in of_first}) == len(of_first)

    def test_batches_are_in_order_and_of_the_labels(self, release, monkeypatch):
        labels = balanced_labels(50, (0.5, 0.5))
        whole = np.concatenate(list(release.generate(labels, seed=1)))
        assert len(whole) == 50
        only = np.concatenate(list(release.generate(np.zeros(50, int), seed=1)))
        np.testing.assert_array_equal(whole[labels == 0], only[labels == 0])
        assert (whole[labels == 1] != only[labels == 1]).any()

    def test_more_images_than_one_batch(self, release):
        images, labels = release.sample(drawing.BATCH + 3, seed=0)
        assert len(images) == len(labels) == drawing.BATCH + 3


@pytest.mark.parametrize(
    ('num', 'prior', 'counts'),
    [
        (10, (0.5, 0.5), [5, 5]),
        (11, (0.5, 0.5), [6, 5]),
        (10, (0.25, 0.75), [3, 7]),
        (4, (1.0, 0.0), [4, 0]),
        (7, (1 / 3, 1 / 3, 1 / 3), [3, 2, 2]),
        (1, (0.2, 0.5, 0.3), [0, 1, 0]),
        (60000, (0.1,) * 10, [6000] * 10),
    ],
)
def test_labels_follow_the_prior_as_closely_as_they_can(num, prior, counts):
    labels = balanced_labels(num, prior)
    found = np.bincount(labels, minlength=len(prior))
    assert sorted(found) == sorted(counts)
    assert abs(found - num * np.array(prior)).max() < 1
    assert (labels.dtype, labels.shape) == (np.int32, (num,))


def test_any_stretch_of_the_labels_is_about_balanced():
    labels = balanced_labels(1000, (0.1,) * 10)
    for start in range(0, 1000, 100):
        counts = np.bincount(labels[start : start + 100], minlength=10)
        assert counts.min() >= 8


def test_a_release_is_loaded_from_a_path_or_a_string(made):
    one, other = load_release(made), load_release(str(made))
    assert one.privacy == other.privacy and one.config == other.config


def test_draws_of_one_config_share_a_program(made, monkeypatch):
    """Of two releases, too; another config has its own."""
    asked = []
    monkeypatch.setattr(
        drawing, 'make_sampler', lambda c: asked.append(c) or make_sampler(c)
    )
    drawing._compiled.cache_clear()
    one, other = load_release(made), load_release(made)
    programs = {id(drawing._compiled(each.config)) for each in (one, other, one)}
    assert len(programs) == len(asked) == 1
    images = [each.sample(3, seed=7)[0] for each in (one, other)]
    np.testing.assert_array_equal(*images)
    narrow = dataclasses.replace(one.config.samples, num=1)
    drawing._compiled(dataclasses.replace(one.config, samples=narrow))
    assert drawing._compiled.cache_info().currsize == 2


@pytest.mark.parametrize(
    ('draw', 'message'),
    [
        (lambda r: r.sample(0), 'num: is 0. Give a whole number from 1 up'),
        (lambda r: r.sample(2.5), 'num: is 2.5. Give a whole number from 1 up'),
        (lambda r: r.sample('3'), "num: is '3'. Give a whole"),
        (lambda r: r.sample(3, seed=0.5), 'seed: is 0.5. Give a whole'),
        (lambda r: r.truncated(0.0), 'truncation: is 0.0. Give a number above 0'),
        (
            lambda r: r.sample(3, prior=(1.0,)),
            r'prior: is \(1.0,\). Give 2 shares from',
        ),
        (lambda r: r.sample(3, prior=(math.nan, 1.0)), r'prior: is \(nan, 1.0\). Give'),
        (lambda r: r.sample(3, prior={0: 0.5, 1: 0.5}), r'prior: is \{0: 0.5'),
        (lambda r: r.sample(3, prior=0.5), 'prior: is 0.5. Give 2 shares'),
        (lambda r: r.generate([[1], [1, 0]]), 'labels: has the shape'),
        (
            lambda r: r.sample(3, seed=2**32),
            'seed: is 4294967296. Give a whole number from 0',
        ),
        (
            lambda r: r.generate(np.array([0, 7])),
            'labels: has 7, which is no class. Giv',
        ),
        (lambda r: r.generate(np.array([-1])), 'labels: has -1, .* from 0 to 1.'),
        (lambda r: r.generate(np.array([0.5])), 'labels: has 0.5, which is no class'),
        (lambda r: r.generate(np.zeros((2, 2))), 'labels: has the shape'),
    ],
)
def test_what_cannot_be_drawn_is_refused(made, draw, message):
    with pytest.raises(UserError, match=message):
        draw(load_release(made))


def test_a_release_of_another_version_names_it(copy):
    fields = json.loads((copy / 'config.json').read_text())
    (copy / 'config.json').write_text(
        json.dumps(fields | {'version': '9.3.0', 'new': 1})
    )
    with pytest.raises(UserError) as error:
        load_release(copy)
    assert str(error.value).endswith('. Install version 9.3.0.')
    assert '..' not in str(error.value)
