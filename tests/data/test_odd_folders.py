"""Folders as they are: whatever is odd ends in pictures, in a note, or in one message.

Each case spoils a folder of twenty pictures in two classes, and says how it ends with nothing
but `recommended.py:folder:PATH`: what is told, and how many pictures are there in the end.
"""

import io
import pathlib
import shutil
import struct
import zlib

import numpy as np
import pytest
import tiny_runs
from PIL import Image

from dpaf_jax import data
from dpaf_jax.config import from_config_dict
from dpaf_jax.pipeline import decide
from dpaf_jax.runtime.errors import UserError

NUMBER = 20


def picture(i, mode='RGB', size=(12, 12)):
    pixels = np.random.default_rng(i).integers(0, 256, (*size[::-1], 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.fixture
def root(tmp_path) -> pathlib.Path:
    root = tmp_path / 'pictures'
    for i in range(NUMBER):
        path = root / ('cat', 'dog')[i % 2] / f'{i:02d}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(i).save(path)
    return root


def outcome(root, tmp_path, **fields):
    """(what was told, number of pictures), or (the error, 0)."""
    config = tiny_runs.load_config('recommended', f'folder:{root},10')
    config.data.update(fields)
    typed = from_config_dict(config, is_open=True)
    try:
        look = decide.look(typed)
        whole = decide.filled(typed, look.decided)
        manifest = data.prepare(whole.data, tmp_path / 'cache')
    except UserError as error:
        assert not (tmp_path / 'cache').exists(), 'nothing half-written'
        return str(error), 0
    return look.seen + look.told, manifest.num_present + manifest.num_test


def save(root, name, image, **options):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


def write(root, name, content):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def table(root, text, encoding='utf-8'):
    write(root, 'labels.csv', text.encode(encoding))


def rows(root, mark=',', labels=('cat', 'dog')):
    names = [f'{("cat", "dog")[i % 2]}/{i:02d}.png' for i in range(NUMBER)]
    lines = [f'{name}{mark}{labels[i % 2]}' for i, name in enumerate(names)]
    return '\n'.join([f'file{mark}label', *lines]) + '\n'


def bomb():
    """A PNG whose head asks for 90 000 x 90 000 pixels."""

    def chunk(kind, content):
        crc = struct.pack('>I', zlib.crc32(kind + content))
        return struct.pack('>I', len(content)) + kind + content + crc

    head = struct.pack('>IIBBBBB', 90_000, 90_000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(90_000))
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + chunk(b'IDAT', pixels)


def half_a_jpeg():
    content = io.BytesIO()
    picture(1, size=(64, 64)).save(content, 'JPEG')
    return content.getvalue()[:600]


def gone(root):
    shutil.rmtree(root)


def emptied(root):
    gone(root)
    root.mkdir()


def renamed(root, **names):
    for old, new in names.items():
        (root / old).rename(root / new)


def into(root, *sides):
    """Classes into each of the folders named."""
    for side in sides[1:]:
        for name in ('cat', 'dog'):
            shutil.copytree(root / name, root / side / name)
    for name in ('cat', 'dog'):
        (root / sides[0]).mkdir(exist_ok=True)
        (root / name).rename(root / sides[0] / name)


def loose(root):
    for path in root.rglob('*.png'):
        path.rename(root / path.name)
    for name in ('cat', 'dog'):
        (root / name).rmdir()


ODD = {
    'no folder': (gone, 'does not exist', 0),
    'an empty folder': (emptied, 'holds no pictures', 0),
    'texts alone': (lambda r: (emptied(r), write(r, 'a.txt', 'x')), 'holds no pictures', 0),
    'GIFs alone': (
        lambda r: (emptied(r), save(r, 'cat/x.gif', picture(99, 'P'))),
        'holds no pictures of a kind that is read (bmp, jpeg, jpg, pgm, png, ppm, tif, '
        'tiff, webp), but files in .gif', 0,
    ),
    'pictures in no class': (loose, '20 pictures, but no classes', 0),
    'splits without classes': (
        lambda r: renamed(r, cat='train', dog='valid'), 'splits, and no classes in', 0
    ),
    'splits in other letters': (
        lambda r: into(r, 'Train', 'Test'), 'Train: splits by their names. Call', 0
    ),
    'splits by other names': (
        lambda r: into(r, 'Training', 'Testing'), 'Training: splits by their names. C', 0
    ),
    'train and valid': (lambda r: into(r, 'train', 'valid'), '20 to train on', 40),
    'train and test of other classes': (
        lambda r: (into(r, 'train', 'test'), renamed(r / 'test', dog='cow')),
        'the class cow, which train/ lacks', 0,
    ),
    'an empty class': (lambda r: (r / 'cow').mkdir(), 'class 1 (cow) has no training', 0),
    'one class': (lambda r: shutil.rmtree(r / 'dog'), 'num_classes=1', 10),
    'a class with a blank at its end': (
        lambda r: renamed(r, dog='dog '), "a class 'dog ', which begins or ends with", 0
    ),
    'an empty file': (lambda r: write(r, 'cat/x.png', b''), 'x.png is not a picture', 0),
    'a text called picture': (
        lambda r: write(r, 'cat/x.jpg', 'no picture'), 'x.jpg is not a picture', 0
    ),
    'half a picture': (
        lambda r: write(r, 'cat/x.jpg', half_a_jpeg()), 'x.jpg is truncated or damaged', 0
    ),
    'a bomb': (lambda r: write(r, 'cat/x.png', bomb()), 'cat/x.png is truncated or dam', 0),
    'sixteen bits': (
        lambda r: save(r, 'cat/x.png', Image.fromarray(np.full((9, 9), 999, np.uint16))),
        '--config.data.window=0:4095', 0,
    ),
    'a palette': (lambda r: save(r, 'cat/x.png', picture(99, 'P')), '1 P', 21),
    'four inks': (lambda r: save(r, 'cat/x.tif', picture(99, 'CMYK')), '1 CMYK', 21),
    'transparency': (lambda r: save(r, 'cat/x.png', picture(99, 'RGBA')), '1 RGBA', 21),
    'black and white': (lambda r: save(r, 'cat/x.bmp', picture(99, '1')), '1 1', 21),
    'WebP': (lambda r: save(r, 'cat/x.webp', picture(99)), '21 RGB', 21),
    'an animation': (
        lambda r: save(r, 'cat/x.gif', picture(99, 'P')), 'no pictures: .gif 1', 20
    ),
    'capitals': (lambda r: renamed(r / 'cat', **{'00.png': '00.PNG'}), '20 RGB', 20),
    'other letters': (
        lambda r: renamed(r / 'cat', **{'00.png': 'Kätzchen Nr. 1.png'}), '20 RGB', 20
    ),
    'ghosts of a Mac': (lambda r: write(r, 'cat/._00.png', 'x'), '20 RGB', 20),
    'a thread of pixels': (
        lambda r: save(r, 'cat/x.png', picture(99, size=(300, 1))), '2 different', 21
    ),
    'a copy': (
        lambda r: shutil.copy(r / 'cat/00.png', r / 'cat/x.png'), 'copies', 21
    ),
    'a copy with another label': (
        lambda r: shutil.copy(r / 'cat/00.png', r / 'dog/x.png'), 'two labels', 21
    ),
    'sites above classes': (
        lambda r: (into(r, 'Rome', 'Oslo')), 'every class has a folder cat', 40
    ),
    'a broken link': (lambda r: (r / 'cat/x.png').symlink_to('nowhere'), 'x.png: cannot', 0),
    'a table': (lambda r: table(r, rows(r)), "class_names=cat/dog", 20),
    'a table by semicolons': (lambda r: table(r, rows(r, ';')), '20 RGB', 20),
    'a table with a mark in front': (
        lambda r: table(r, rows(r), 'utf-8-sig'), '20 RGB', 20
    ),
    'a table in another encoding': (
        lambda r: table(r, rows(r, labels=('Kätzchen', 'Hund')), 'latin-1'),
        'is not a table', 0,
    ),
    'a table of labels from 1': (
        lambda r: table(r, rows(r, labels=('1', '2'))), 'class 0 (0) has no training', 0
    ),
    'a table without its first line': (
        lambda r: table(r, rows(r).partition('\n')[2]), 'lacks the columns', 0
    ),
    'a row without its picture': (
        lambda r: table(r, rows(r) + 'cat/x.png,cat\n'), 'cat/x.png, which does not', 0
    ),
    'a picture without its row': (
        lambda r: (save(r, 'cat/x.png', picture(99)), table(r, rows(r))),
        'pictures without a row in labels.csv passed over', 20,
    ),
    'a row twice': (lambda r: table(r, rows(r) + 'cat/00.png,cat\n'), 'a second time', 0),
    'a row of another folder': (
        lambda r: table(r, rows(r) + '../x.png,cat\n'), 'outside the folder', 0
    ),
    'a row without a label': (lambda r: table(r, rows(r) + 'x.png,\n'), 'no label', 0),
}  # fmt: skip


@pytest.mark.parametrize('case', ODD)
def test_an_odd_folder_ends_as_it_should(case, root, tmp_path):
    spoil, told, number = ODD[case]
    spoil(root)
    message, found = outcome(root, tmp_path)
    assert told in message
    assert found == number


def test_sixteen_bits_with_a_window(root, tmp_path):
    save(root, 'cat/x.png', Image.fromarray(np.full((9, 9), 999, np.uint16)))
    assert outcome(root, tmp_path, window='0:2000')[1] == NUMBER + 1
