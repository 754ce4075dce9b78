"""A look at a folder: what is seen, and what follows from it."""

import os
import shutil
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from sources import make_config

from dpaf_jax.data.near_copies import near_copies, thumbnail
from dpaf_jax.data.survey import proposed, survey, table
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.signals import Interrupted


def open_config(root, **changes):
    fields = {'source': f'folder:{root}', 'image_size': 0, 'channels': 0}
    return make_config(**(fields | {'num_classes': 0} | changes))


def save(path, size=(20, 30), mode='RGB', seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], 3)
    noise = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    Image.fromarray(noise).convert(mode).save(path)


@pytest.fixture
def root(tmp_path):
    """Thirty pictures in two classes, and what is found beside pictures."""
    root = tmp_path / 'pictures'
    for i in range(30):
        mode = 'L' if i % 3 else 'RGB'
        save(root / ('cat', 'dog')[i % 2] / f'{i:02d}.png', (20 + i, 40), mode, i)
    (root / 'dog' / 'copy.png').write_bytes((root / 'cat' / '00.png').read_bytes())
    (root / 'dog' / 'notes.txt').write_text('x')
    (root / 'cat' / 'phone.heic').write_text('x')
    save(root / 'stray.png')
    return root


def test_what_there_is(root):
    found = survey(open_config(root))
    assert (found.class_names, found.counts) == (('cat', 'dog'), (15, 16))
    assert found.num_train + found.num_test == 31 and found.num_test > 0
    assert found.modes == {'L': 20, 'RGB': 11} and len(found.sizes) == 30
    assert found.repeated == found.mislabelled == (('cat/00.png', 'dog/copy.png'),)
    shown = table(found)
    for text in ('cat: 15', 'dog: 16', '20 x 40 to 49 x 40', '20 L, 11 RGB', 'copies'):
        assert text in shown, text
    assert '1 pictures in no folder of a class passed over, such as stray.png' in shown
    assert '.heic 1, .txt 1' in shown and 'eyes alone' in shown.splitlines()[0]


@pytest.fixture
def photograph():
    """Smooth, as photographs are: no two alike."""

    def drawn(seed):
        coarse = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), np.uint8)
        return Image.fromarray(coarse).resize((100, 120), Image.Resampling.BICUBIC)

    return drawn


def test_copies_that_differ_a_little_are_seen(tmp_path, photograph):
    for i in range(20):
        path = tmp_path / ('cat', 'dog')[i % 2] / f'{i:02d}.jpg'
        path.parent.mkdir(exist_ok=True)
        photograph(i).save(path, quality=95)
    touched = photograph(0).resize((70, 84)).point(lambda level: 0.9 * level + 10)
    touched.save(tmp_path / 'dog' / 'small.jpg', quality=70)
    (tmp_path / 'cat' / 'same.jpg').write_bytes((tmp_path / 'cat/02.jpg').read_bytes())
    found = survey(open_config(tmp_path))
    assert found.alike == found.mislabelled == (('cat/00.jpg', 'dog/small.jpg'),)
    assert found.repeated == (('cat/02.jpg', 'cat/same.jpg'),)
    shown = table(found)
    assert 'near copies' in shown and 'cat/00.jpg ~ dog/small.jpg' in shown
    assert 'epsilon is for one picture' in shown and 'config.data.group' in shown


def test_frames_of_a_film_are_one_group(photograph):
    """Pairs would be as many as their square."""
    first, last = (np.asarray(photograph(i), np.float64) for i in (0, 1))
    frames = [first + (last - first) * t for t in np.linspace(0, 0.3, 400)]
    small = [thumbnail(Image.fromarray(frame.astype(np.uint8))) for frame in frames]
    assert near_copies(small) == [list(range(400))]


def test_nothing_is_alike_among_blank_pictures_and_few(tmp_path, photograph):
    for folder in ('cat', 'dog'):
        (tmp_path / folder).mkdir()
    everything = open_config(tmp_path, test_fraction=0.0)
    Image.new('L', (20, 20), 3).save(tmp_path / 'cat' / 'black.png')
    Image.new('L', (30, 30), 250).save(tmp_path / 'dog' / 'white.png')
    assert survey(everything).alike == ()
    photograph(1).save(tmp_path / 'dog' / 'one.png')
    found = survey(everything)
    assert found.alike == () and 'copies' not in table(found)


def test_what_follows(root):
    found = survey(open_config(root))
    assert proposed(found) == {
        'num_classes': 2,
        'class_names': 'cat/dog',
        'image_size': 32,
        'channels': 3,
        'num_examples': found.num_train,
        'delta': 0.002,
    }


@pytest.mark.parametrize(
    ('sizes', 'side'),
    [
        ([(28, 28)], 28),
        ([(8, 8)], 8),
        ([(64, 64)], 32),
        ([(28, 30)], 16),
        ([(20, 90), (90, 20), (33, 40)], 16),
        ([(5, 5)], 8),
        ([(16, 17), (15, 17)], 16),
    ],
)
def test_the_side_is_one_that_half_of_the_pictures_reach(tmp_path, sizes, side):
    for i in range(12):
        save(tmp_path / 'x' / f'{i}.png', sizes[i % len(sizes)], seed=i)
    assert proposed(survey(open_config(tmp_path)))['image_size'] == side


@pytest.mark.parametrize(
    ('number', 'delta'), [(1, 0.1), (600, 1e-4), (472, 2e-4), (60_000, 1e-6)]
)
def test_delta_is_at_most_a_tenth_of_one_in_n(root, number, delta):
    found = survey(open_config(root))._replace(num_train=number)
    assert proposed(found)['delta'] == delta <= 0.1 / number


def test_grey_pictures_stay_grey(tmp_path):
    for i in range(9):
        save(tmp_path / 'x' / f'{i}.png', mode='L', seed=i)
    assert proposed(survey(open_config(tmp_path)))['channels'] == 1


@pytest.mark.parametrize('mode', ['I;16', 'I;16B', 'I', 'F'])
def test_scans_of_more_than_eight_bits_are_grey(root, mode):
    found = survey(open_config(root))._replace(modes={mode: 31})
    assert proposed(found)['channels'] == 1


def png_of_16_bits(colours: int) -> bytes:
    """Eight by eight; Pillow writes none of several colours."""
    kind = {1: 0, 3: 2, 4: 6}[colours]
    head = struct.pack('>IIBBBBB', 8, 8, 16, kind, 0, 0, 0)
    row = b'\0' + bytes(range(16)) * colours

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack('>I', len(data)) + name + data + struct.pack('>I', check)

    parts = (b'IHDR', head), (b'IDAT', zlib.compress(8 * row)), (b'IEND', b'')
    return b'\x89PNG\r\n\x1a\n' + b''.join(chunk(*part) for part in parts)


@pytest.mark.parametrize(('colours', 'told'), [(1, False), (3, True), (4, True)])
def test_colours_of_16_bits_lose_half_of_them_and_it_is_said(root, colours, told):
    (root / 'cat' / 'scan.png').write_bytes(png_of_16_bits(colours))
    found = survey(open_config(root))
    assert found.halved == ('cat/scan.png',) * told
    assert found.deep == ('cat/scan.png',) * (not told)
    line = (
        '1 pictures have 16 bits a colour; the higher 8 are read, such as of cat/scan'
    )
    assert (line in table(found)) == told


def test_names_that_are_not_utf_8_can_be_shown(tmp_path):
    for name in (b'K\xe4tzchen.png', b'copy.png'):
        save(tmp_path / 'cat' / os.fsdecode(name))
    shown = table(survey(open_config(tmp_path)))
    assert 'tzchen.png' in shown and shown.encode()


@pytest.mark.parametrize('label', ['20231127', '100000000000000000000'])
def test_a_label_that_is_no_class_is_named(tmp_path, label):
    for i in range(4):
        save(tmp_path / f'{i}.png', seed=i)
    rows = ['file,label', '0.png,0', '1.png,1', f'2.png,{label}', '3.png,0']
    (tmp_path / 'labels.csv').write_text('\n'.join(rows))
    with pytest.raises(UserError, match=r'label of 2\.png is above 100000') as refused:
        survey(open_config(tmp_path))
    assert label not in str(refused.value)  # it is private


def test_a_label_below_zero_is_refused_before_a_plan(tmp_path):
    images, labels = np.zeros((9, 8, 8), np.uint8), np.arange(9) % 3 - 1
    np.savez(tmp_path / 'x.npz', images=images, labels=labels)
    with pytest.raises(UserError, match='has a label below 0'):
        survey(open_config(tmp_path, source=f'npz:{tmp_path}/x.npz'))


def test_a_stop_is_no_broken_picture(root, monkeypatch):
    def stopped(*args):
        raise Interrupted(15, 'stopped')

    monkeypatch.setattr('dpaf_jax.data.survey.thumbnail', stopped)
    with pytest.raises(Interrupted):
        survey(open_config(root))


def test_splits_are_not_taken_for_classes(tmp_path):
    for i in range(8):
        save(tmp_path / ('train', 'valid')[i % 2] / f'{i}.png', seed=i)
    with pytest.raises(UserError, match='has the folders train, valid: splits'):
        survey(open_config(tmp_path))


@pytest.mark.parametrize('held_out', ['test', 'valid', 'val'])
def test_a_held_out_folder_by_any_of_its_names(tmp_path, held_out):
    for i in range(8):
        side = 'train' if i < 6 else held_out
        save(tmp_path / side / 'ab'[i % 2] / f'{i}.png', seed=i)
    found = survey(open_config(tmp_path))
    assert (found.num_train, found.num_test, found.class_names) == (6, 2, ('a', 'b'))


def test_folders_that_look_like_sites(tmp_path):
    for i in range(8):
        save(tmp_path / f'site{i % 2}' / f'class{i // 4}' / f'{i}.png', seed=i)
    (note,) = survey(open_config(tmp_path)).notes
    assert 'every class has a folder class0' in note and 'labels.csv' in note


def test_pictures_without_a_row(tmp_path):
    for i in range(6):
        save(tmp_path / f'{i}.png', seed=i)
    rows = [f'{i}.png;{"ab"[i % 2]}' for i in range(4)]
    text = '\n'.join(['file;label', *rows])
    (tmp_path / 'labels.csv').write_text(text, encoding='utf-8-sig')
    found = survey(open_config(tmp_path))
    assert found.counts == (2, 2)
    assert '2 pictures without a row in labels.csv' in found.notes[0]


@pytest.mark.parametrize('file', ['../other.png', '/etc/other.png'])
def test_a_row_that_leaves_the_folder(tmp_path, file):
    save(tmp_path / 'other.png')
    (tmp_path / 'in').mkdir()
    (tmp_path / 'in' / 'labels.csv').write_text(f'file,label\n{file},a\n')
    with pytest.raises(
        UserError, match='line 2: names .*other.png, outside the folder'
    ):
        survey(open_config(tmp_path / 'in'))


def test_a_broken_picture_is_counted_and_stops_nothing_yet(root):
    (root / 'cat' / '02.png').write_bytes(b'no picture')
    found = survey(open_config(root))
    assert found.unreadable == ('cat/02.png is not a picture, or is damaged',)
    assert '1 that cannot be opened' in table(found)


def test_a_class_without_training_images_is_seen_before_its_pictures(root, monkeypatch):
    shutil.rmtree(root / 'dog')
    save(root / 'dog' / 'only.png')
    monkeypatch.setattr('dpaf_jax.data.checks.hash_split', held_out('dog/only.png'))
    with pytest.raises(UserError, match=r'class 1 \(dog\) has no training images'):
        survey(open_config(root))


def held_out(name):
    """A split that tests on one picture alone."""
    return lambda record_id, n, share: np.array(
        [record_id(i) == name for i in range(n)]
    )
