"""Drawing a data set from a release, as somebody does who has only the release."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tiny_runs
from PIL import Image

from dpaf_jax.config import from_config_dict
from dpaf_jax.release.samplers.dpaf import truncated
from dpaf_jax.runtime.errors import UserError

# Runs several commands in one process, which knows only what `sample` imports.
SCRIPT = """
import json, sys
import tiny_runs
from dpaf_jax import sample
outcomes = [
    tiny_runs.call(sample.run, 'dpaf_jax.sample', *args)
    for args in json.loads(sys.argv[1])
]
print(json.dumps({'outcomes': outcomes, 'modules': sorted(sys.modules)}))
"""
NEITHER_DATA_NOR_TRAINING = (
    'dpaf_jax.data', 'dpaf_jax.pipeline', 'dpaf_jax.methods',
    'dpaf_jax.training', 'dpaf_jax.evaluation', 'dpaf_jax.audit', 'dpaf_jax.attack',
    'dpaf_jax.privacy.keys', 'dpaf_jax.privacy.sampling', 'dpaf_jax.runtime.parallel',
    'optax', 'orbax', 'sklearn', 'tensorflow_datasets', 'tensorflow',
)  # fmt: skip
COMMANDS = {
    'npz': ('--num=21', '--seed=5', '--out=a.npz'),
    'npz again': ('--num=21', '--seed=5', '--out=new/b.NPZ'),
    'npz of another seed': ('--num=21', '--seed=6', '--out=c.npz'),
    'npz without a seed': ('--num=21', '--out=d.npz'),
    'folder': ('--num=21', '--seed=5', '--out=images'),
    'prior': ('--num=20', '--prior=0.25,0.75', '--out=prior.npz'),
    'truncated': ('--num=21', '--seed=5', '--truncation=0.2', '--out=near.npz'),
    'truncation above one': ('--num=3', '--truncation=1.5', '--out=x.npz'),
    'folder that is there': ('--num=3', '--out=images'),
    'npz that is there': ('--num=3', '--out=a.npz'),
    'picture': ('--num=3', '--out=x.JPG'),
    'place in the release': ('--num=3', '--out=release/x.npz'),
    'table of images': ('--num=3', '--out=x.csv'),
    'prior of three': ('--num=3', '--prior=0.2,0.3,0.5', '--out=x.npz'),
    'prior above one': ('--num=3', '--prior=0.6,0.6', '--out=x.npz'),
    'negative prior': ('--num=3', '--prior=-0.5,1.5', '--out=x.npz'),
    'prior of words': ('--num=3', '--prior=some,more', '--out=x.npz'),
    'prior of no numbers': ('--num=3', '--prior=nan,nan', '--out=x.npz'),
    'truncation of no number': ('--num=3', '--truncation=nan', '--out=x.npz'),
    'seed of 20 digits': ('--num=3', f'--seed={10**20}', '--out=x.npz'),
    'more than memory': (f'--num={10**12}', '--out=x.npz'),
    'more than any disk': (f'--num={10**12}', '--out=x'),
    'no images': ('--num=0', '--out=x.npz'),
    'no place': ('--num=3',),
    'no release': ('--release=nowhere', '--num=3', '--out=x.npz'),
    'damaged release': ('--release=damaged', '--num=3', '--out=x.npz'),
    'stray word': ('--num=3', '--out=x.npz', 'stray'),
    'place below a file': ('--num=3', '--out=a.npz/x.npz'),
    'folder below a file': ('--num=3', '--out=a.npz/x'),
}


class Session:
    """What all commands of this module left, run one after the other."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        release = tiny_runs.finished('one_shot').workdir / 'release'
        shutil.copytree(release, folder / 'release')
        shutil.copytree(release, folder / 'damaged')
        (folder / 'damaged' / 'privacy.json').write_text('{')
        commands = [
            (*args, *(() if '--release' in ''.join(args) else ('--release=release',)))
            for args in COMMANDS.values()
        ]
        python = {'PYTHONPATH': f'{tiny_runs.ROOT}:{tiny_runs.ROOT / "tests"}'}
        done = tiny_runs.run_python(
            '-c', SCRIPT, json.dumps(commands), cwd=folder, environment=python
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        self.modules = found['modules']
        self._outcomes = dict(zip(COMMANDS, found['outcomes'], strict=True))

    def succeeded(self, name: str) -> str:
        code, out, err = self._outcomes[name]
        assert (code, err) == (0, '')
        return out

    def failed(self, name: str) -> str:
        code, out, err = self._outcomes[name]
        assert code != 0 and 'Traceback' not in err and out == ''
        return err

    def npz(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        with np.load(self.folder / name) as arrays:
            assert set(arrays) == {'images', 'labels'}
            return arrays['images'], arrays['labels']


@pytest.fixture(scope='module')
def session(tmp_path_factory) -> Session:
    return Session(tmp_path_factory.mktemp('sample'))


def image_folder(root: pathlib.Path) -> list[tuple[pathlib.Path, int]]:
    """torchvision.datasets.ImageFolder: classes are the sorted folders of `root`."""
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    assert classes
    found = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((root / name).rglob('*.png'))
    ]
    assert {label for _, label in found} == set(range(len(classes)))
    return found


def test_it_needs_neither_data_nor_training_code(session):
    loaded = set(session.modules)
    assert 'dpaf_jax.release.bundle' in loaded
    for name in NEITHER_DATA_NOR_TRAINING:
        assert not {m for m in loaded if m == name or m.startswith(f'{name}.')}


def test_an_npz_is_class_balanced_uint8(session):
    images, labels = session.npz('a.npz')
    assert (images.shape, images.dtype) == ((21, 8, 8, 1), np.uint8)
    assert (labels.shape, labels.dtype) == ((21,), np.int32)
    assert sorted(np.bincount(labels)) == [10, 11]
    progress, said = session.succeeded('npz').splitlines()
    assert progress.startswith('samples  image 21/21 · done in')
    assert said == '21 synthetic images in a.npz'


def test_a_seed_repeats_the_images(session):
    images, labels = session.npz('a.npz')
    again, labels_again = session.npz('new/b.NPZ')
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(labels, labels_again)
    for name in ('c.npz', 'd.npz'):
        assert (session.npz(name)[0] != images).any()


def test_truncated_images_of_a_class_are_nearer_to_each_other(session):
    def spread(name):
        images, labels = session.npz(name)
        of_one = images[labels == 0].astype(float)
        return np.linalg.norm(of_one - of_one.mean(axis=0))

    assert spread('near.npz') < 0.5 * spread('a.npz')


def test_truncation_is_of_dpaf_alone_and_does_not_bend():
    config = from_config_dict(tiny_runs.load_config('recommended', 'mnist'))
    near = truncated(config, 0.5).dpaf.generator
    assert near.latent_scale == 0.425  # half of that of grey images
    assert (near.warp, near.warp_of_few) == (0.0, 0.0)
    assert truncated(config, 1.0) is config
    other = from_config_dict(tiny_runs.load_config('dp_merf', 'digits'))
    with pytest.raises(UserError, match='^truncation: is 0.5, for a release of dp_m'):
        truncated(other, 0.5)


def test_a_given_prior_is_followed(session):
    assert np.bincount(session.npz('prior.npz')[1]).tolist() == [5, 15]


def test_a_folder_holds_the_pixels_and_labels_of_the_npz(session):
    images, labels = session.npz('a.npz')
    found = image_folder(session.folder / 'images' / 'train')
    assert len(found) == 21
    for path, label in found:
        index = int(path.stem)
        assert label == labels[index]
        with Image.open(path) as picture:
            np.testing.assert_array_equal(np.asarray(picture), images[index, ..., 0])


def test_a_folder_is_read_by_our_own_source(session, tmp_path):
    from dpaf_jax import data

    config = from_config_dict(tiny_runs.one_shot(f'folder:{session.folder / "images"}'))
    manifest = data.prepare(config.data, tmp_path / 'data')
    assert manifest.class_names == ('0', '1')
    assert manifest.num_examples + manifest.num_test == 21


@pytest.mark.parametrize('names', ['', 'm/l/k/j/i/h/g/f/e/d/c/b'])
def test_class_folders_sort_as_labels_do(tmp_path, names):
    import dataclasses

    from dpaf_jax.release.bundle import load_release
    from dpaf_jax.release.export import write_folder

    release = load_release(tiny_runs.finished('one_shot').workdir / 'release')
    data = dataclasses.replace(release.config.data, num_classes=12, class_names=names)
    release = dataclasses.replace(
        release, config=dataclasses.replace(release.config, data=data)
    )
    images = np.arange(24, dtype=np.uint8).reshape(24, 1, 1, 1) * np.ones((4, 4, 1))
    object.__setattr__(
        release, 'generate', lambda labels, seed, on_progress: [images.astype(np.uint8)]
    )
    write_folder(tmp_path / 'out', release, np.arange(24) % 12, seed=0)
    for path, label in image_folder(tmp_path / 'out' / 'train'):
        assert label == int(path.stem) % 12


def test_tfds_reads_the_folder(session):
    pytest.importorskip('tensorflow', reason='TFDS lists image folders by TensorFlow')
    import tensorflow_datasets as tfds

    builder = tfds.folder_dataset.ImageFolder(str(session.folder / 'images'))
    assert builder.info.splits['train'].num_examples == 21
    assert builder.info.features['label'].names == ['0', '1']


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('folder that is there', '--out: images: exists. Give another --out'),
        ('npz that is there', '--out: a.npz: exists. Give another --out'),
        ('picture', '--out: x.JPG: is the name of one picture'),
        ('place in the release', '--out: release/x.npz: lies in the release'),
        ('table of images', '--out: x.csv: is for tables, not for images'),
        ('prior of three', '--prior: is 0.2,0.3,0.5. Give 2 numbers from 0 that sum'),
        ('prior above one', '--prior: is 0.6,0.6. Give 2 numbers'),
        ('negative prior', '--prior: is -0.5,1.5. Give 2 numbers'),
        ('prior of words', '--prior: is some,more. Give 2 numbers'),
        ('truncation above one', '--truncation=1.5: 1.5 is not a'),
        ('prior of no numbers', '--prior: is nan,nan. Give 2 numbers'),
        (
            'truncation of no number',
            'truncation: is nan. Give a number above 0, at most 1',
        ),
        (
            'seed of 20 digits',
            f'--seed={10**20}: {10**20} is not an integer in the range',
        ),
        ('more than memory', f'--num: is {10**12}, which takes 163912.8 GiB of memory'),
        (
            'more than any disk',
            f'--num: is {10**12}, which takes 44703.5 GiB of memory',
        ),
        ('no images', '--num=0: 0 is not a positive integer'),
        ('no place', 'error: --out is needed. See '),
        ('no release', 'nowhere/generator.safetensors: is missing. Give the folder'),
        ('damaged release', 'damaged/privacy.json: is damaged'),
        ('stray word', "unknown argument 'stray'"),
        ('place below a file', '--out: a.npz/x.npz: is below a.npz, a file. Give an'),
        ('folder below a file', '--out: a.npz/x: is below a.npz, a file. Give another'),
    ],
)
def test_what_is_wrong_is_said(session, name, message):
    assert message in session.failed(name)


def test_a_refused_command_leaves_no_file(session):
    left = {path.name for path in session.folder.iterdir()}
    assert left == {
        'release', 'damaged', 'a.npz', 'new', 'c.npz', 'd.npz', 'images', 'prior.npz',
        'near.npz',
    }  # fmt: skip
    assert len(image_folder(session.folder / 'images' / 'train')) == 21


def test_the_command_itself_from_the_releases_own_folder(session):
    done = tiny_runs.run_python(
        *('-m', 'dpaf_jax.sample', '--release=.', '--num=2', '--out=../own.npz'),
        cwd=session.folder / 'release',
    )
    assert (done.returncode, done.stderr) == (0, '')
    assert len(session.npz('own.npz')[1]) == 2
    (session.folder / 'own.npz').unlink()
