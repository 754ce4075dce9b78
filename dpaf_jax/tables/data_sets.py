"""Which data a column means, and where they lie: --data=FOLDER, else as the config says."""

import contextlib
import functools
import hashlib
import hmac
import os
import pathlib
import secrets
import tempfile
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_sample_images

from dpaf_jax.runtime.errors import UserError
from dpaf_jax.tables.scales import Settings


class DataSet(NamedTuple):
    """One of DATA_SETS.

    Attributes:
        title: what tables call it.
        files: what it may be in the folder, by kind of source.
        tfds: its name there, if TFDS has it.
    """

    title: str
    files: tuple[tuple[str, str], ...]
    tfds: str = ''


def _grey(title: str, name: str) -> DataSet:
    return DataSet(title, (('npz', f'{name}.npz'),), name)


def _celeba(title: str) -> DataSet:
    return DataSet(title, (('celeba', 'celeba'), ('celeba', 'celeba.tar')))


DATA_SETS = {
    'mnist': _grey('MNIST', 'mnist'),
    'fashion_mnist': _grey('Fashion-MNIST', 'fashion_mnist'),
    'celeba32:gender': _celeba('CelebA-Gender, 32 × 32'),
    'celeba64:gender': _celeba('CelebA-Gender'),
    'celeba64:hair': _celeba('CelebA-Hair'),
    'ffhq128': DataSet('FFHQ-Gender', (('ffhq', 'ffhq/images'),)),
    'lsun_bedroom': DataSet(
        'LSUN-bedroom', (('folder', 'lsun_bedroom'),), 'lsun/bedroom'
    ),
    'cifar10': DataSet('CIFAR-10', (('npz', 'cifar10.npz'),), 'cifar10'),
    'credit': DataSet('Kaggle credit', (('table', 'creditcard.csv'),)),
}
PUBLIC = {'cifar10': 10}  # what training may start from, and its classes
SMOKE_PICTURES, SMOKE_SIDE = 600, 16
ANNOTATIONS = 'ffhq/json'
TABLE_COLUMNS = [*(f'V{i}' for i in range(1, 29)), 'Amount']


def located(name: str, folder: pathlib.Path | None) -> Settings | None:
    """Fields that say where the data lie; None where they are not there.

    Args:
        name: of DATA_SETS.
        folder: `--data`; None: there is none.
    """
    data = DATA_SETS[name]
    for kind, file in data.files:
        path = folder and (folder / file).resolve()
        if path and path.exists():
            found: dict[str, Any] = {'data.source': f'{kind}:{path}'}
            if kind == 'ffhq' and folder:
                found['data.annotations'] = str((folder / ANNOTATIONS).resolve())
            if kind == 'folder':
                found['data.num_examples'] = 0  # a part of the data set
            return found
    if data.tfds and (_tfds_folder() / data.tfds).exists():
        return {}
    return None


def wanted(name: str) -> str:
    """How to give a data set."""
    data = DATA_SETS[name]
    files = ' or '.join(file for _, file in data.files)
    also = f', or: tfds build {data.tfds} --file_format=array_record' * bool(data.tfds)
    return f'{data.title}: {files} in --data{also}'


def _tfds_folder() -> pathlib.Path:
    return pathlib.Path(
        os.environ.get('TFDS_DATA_DIR', '~/tensorflow_datasets')
    ).expanduser()


class Made(NamedTuple):
    """An archive of ours that a run reads, written before its first run.

    Attributes:
        path: of it.
        source: whose first training records it has, an .npz file; '': scikit-learn's rows,
            or its pictures.
        number: of those records; without a source, of pictures.
    """

    path: pathlib.Path
    source: str = ''
    number: int = 0

    def write(self) -> None:
        """Writes it, unless it is there."""
        if self.path.exists():
            return
        if self.source:
            arrays = _first(self.source, self.number)
        else:
            arrays = _pictures(self.number) if self.number else _rows()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.parent.chmod(0o700)  # records of a source are private
        # Tasks of an array may write it at the same time: each under a name of its own.
        with tempfile.TemporaryDirectory(dir=self.path.parent) as place:
            temporary = pathlib.Path(place) / self.path.name
            np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
            os.replace(temporary, self.path)


def first_records(
    source: str, number: int, folder: pathlib.Path
) -> tuple[Settings, Made]:
    """The first training records alone, as an archive of their own; all test records.

    Args:
        source: `npz:PATH` of train_x, train_y, test_x and test_y.
        number: of records.
        folder: gets the archive.

    Raises:
        UserError: the source is no such archive.
    """
    kind, _, path = source.partition(':')
    if kind != 'npz':
        raise UserError(
            '--data', f'has no .npz file for {number} records', 'Add mnist.npz to it'
        )
    # Its name says of which archive: another one's records are another run's.
    made = folder / f'{pathlib.Path(path).stem}-{number}-{mark_of(path, folder)}.npz'
    settings = {'data.source': f'npz:{made.resolve()}', 'data.num_examples': number}
    return settings, Made(made, path, number)


def mark_of(path: str, private: pathlib.Path) -> str:
    """Tells files apart by their content, and says nothing of it to who lacks the salt.

    Names of runs are printed, and stand in tables. A plain checksum there would tell whoever
    knows all other records whether one more is among them.

    Args:
        path: of the file.
        private: holds the salt, and is as private as the file.
    """
    return hmac.new(_salt(private), sha256_of(path).encode(), 'sha256').hexdigest()[:12]


def _salt(private: pathlib.Path) -> bytes:
    """Of one folder of tables: made by the first process that asks, whole or not at all."""
    salt = private / 'salt'
    if not salt.exists():
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
        private.chmod(0o700)
        drawn = private / f'salt-{secrets.token_hex(8)}'
        drawn.write_bytes(secrets.token_bytes(32))
        with contextlib.suppress(FileExistsError):
            os.link(drawn, salt)
        drawn.unlink()
    return salt.read_bytes()


def sha256_of(path: str) -> str:
    """Of a file's content, read once as long as it stays the same."""
    stat = os.stat(path)
    return _sha256_of(path, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _sha256_of(path: str, *_: int) -> str:
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def _first(path: str, number: int) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as whole:
        arrays = {name: whole[name] for name in whole.files}
    cut = arrays.keys() & {'train_x', 'train_y', 'x_train', 'y_train'}
    if len(cut) != 2:
        problem = f'has the keys {", ".join(sorted(arrays))}'
        raise UserError(path, problem, 'Use train_x, train_y, test_x, test_y')
    for name in cut:
        arrays[name] = arrays[name][:number]
    return arrays


def public_images(
    name: str, folder: pathlib.Path | None, private: pathlib.Path, *, is_smoke: bool
) -> tuple[Settings | None, Made | None]:
    """Fields of a warm start on public images; None where they are not there.

    Args:
        name: of PUBLIC.
        folder: `--data`.
        private: gets the pictures that stand in at `smoke`.
        is_smoke: parts of two of scikit-learn's photographs, each a class.
    """
    if is_smoke:
        made = private / 'pictures.npz'
        source, classes = f'npz:{made.resolve()}', 2
        reads = Made(made, number=SMOKE_PICTURES)
        return _warm_start(source, classes), reads
    place = located(name, folder)
    if place is None:
        return None, None
    source = place.get('data.source', f'tfds:{DATA_SETS[name].tfds}')
    return _warm_start(source, PUBLIC[name]), None


def _warm_start(source: str, classes: int) -> Settings:
    return {'dpaf.warm_start': source, 'dpaf.warm_start_classes': classes}


def stand_in(name: str, folder: pathlib.Path) -> tuple[Settings, Made | None]:
    """At `smoke`: digits of 16 x 16 for images, scikit-learn's breast cancer for rows."""
    if name == 'credit':
        rows = folder / 'rows.npz'
        settings = {'data.source': f'table:{rows.resolve()}', 'data.num_examples': 0}
        return settings, Made(rows)
    digits = {
        'data.source': 'digits',
        'data.image_size': 16,
        'data.channels': 1,
        'data.num_classes': 10,
        'data.num_examples': 1469,
        'data.attribute': '',
        'data.annotations': '',
        'data.test_fraction': 0.2,
    }
    return digits, None


def _rows() -> dict[str, np.ndarray]:
    """Rows in the columns of credit.py, within its bounds."""
    values, labels = load_breast_cancer(return_X_y=True)
    centred = (values - values.mean(axis=0)) / values.std(axis=0)
    return {**dict(zip(TABLE_COLUMNS, centred.T, strict=False)), 'Class': labels}


def _pictures(number: int) -> dict[str, np.ndarray]:
    """Grey squares of scikit-learn's photographs, which are the classes."""
    rng, images = np.random.default_rng(0), []
    labels = np.arange(number) % 2
    photographs = [p.mean(axis=-1) for p in load_sample_images().images]
    for label in labels:
        whole = photographs[label]
        y, x = (rng.integers(n - SMOKE_SIDE) for n in whole.shape)
        images.append(whole[y : y + SMOKE_SIDE, x : x + SMOKE_SIDE])
    pictures = np.array(images).astype(np.uint8)
    held = number // 10
    return {
        'train_x': pictures[held:],
        'train_y': labels[held:],
        'test_x': pictures[:held],
        'test_y': labels[:held],
    }
