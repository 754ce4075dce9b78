"""What a look at the data finds against a config: refused at once, and by its name."""

import pathlib
import sys

import numpy as np
import pytest
import tiny_runs
from PIL import Image

from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.runtime.errors import UserError


def save(path: pathlib.Path, seed: int = 0, kind: type = np.uint8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, np.iinfo(kind).max, (9, 9), kind)
    Image.fromarray(noise).save(path)


@pytest.fixture
def root(tmp_path) -> pathlib.Path:
    """Forty pictures in two classes."""
    for i in range(40):
        save(tmp_path / 'pictures' / ('cat', 'dog')[i % 2] / f'{i:02d}.png', i)
    return tmp_path / 'pictures'


@pytest.fixture
def labelled(root):
    """Names the two classes in a table."""

    def write(*names: str) -> pathlib.Path:
        rows = [f'{p.parent.name}/{p.name}' for p in sorted(root.glob('*/*.png'))]
        lines = [f'{row},"{names[row.startswith("dog")]}"' for row in rows]
        (root / 'labels.csv').write_text('\n'.join(['file,label', *lines]))
        return root / 'labels.csv'

    return write


def made(root: pathlib.Path, **fields) -> Pipeline:
    config = tiny_runs.load_config('recommended', f'folder:{root},10')
    config.data.update(fields)
    return Pipeline(config, root.parent / 'run')


def refused(root: pathlib.Path, **fields) -> str:
    with pytest.raises(UserError) as error:
        made(root, **fields)
    assert not (root.parent / 'run').exists(), 'nothing is written'
    return str(error.value)


@pytest.mark.parametrize(('number', 'listed'), [(1, 1), (12, 10)])
def test_what_is_no_picture_is_named(root, number, listed):
    for i in range(number):
        (root / 'cat' / f'torn{i:02d}.png').write_bytes(b'no picture')
    message = refused(root)
    assert message.startswith(f'{root}: cat/torn00.png')
    assert message.count('torn') == listed and ('others' in message) == (
        number > listed
    )
    assert 'is not a picture, or is damaged' in message


@pytest.mark.parametrize(('number', 'listed'), [(1, 1), (12, 10)])
def test_deep_pictures_are_named(root, number, listed):
    for i in range(number):
        save(root / 'cat' / f'deep{i:02d}.png', i, np.uint16)
    message = refused(root)
    assert message.startswith("config.data.window: is '', but cat/deep00.png")
    assert message.count('cat/deep') == listed
    have = 'has' if number == 1 else 'others have'
    assert f'{have} more than 8 bits a channel. Replace' in message
    assert '--config.data.window=0:4095' in message


@pytest.mark.parametrize(
    ('name', 'why'),
    [('circle/x', 'has a slash'), ('.x', 'begins with a dot'), ('a\nb', 'has a line')],
)
def test_a_name_that_cannot_be_public_is_named_with_its_table(
    root, labelled, name, why
):
    table = labelled('square', name)
    message = refused(root)
    assert message.startswith(f'{table}: has a class {name!r}, which {why}')
    assert message.endswith('unknown: --config.data.class_names= (empty).')
    assert made(root, class_names='').config.data.names == ('0', '1')


def test_a_name_that_cannot_be_public_is_named_with_its_folder(root):
    (root / 'cat').rename(root / 'cat\n')
    message = refused(root)
    assert message.startswith(f"{root}: has a class 'cat\\n', which has a line break")


def test_a_stated_number_of_classes_is_compared_first(root):
    save(root / 'cow' / '0.png')
    assert refused(root, num_classes=2) == (
        f'config.data.num_classes: is 2, but {root} has 3 classes. Set it to 3, or '
        'correct the data.'
    )


@pytest.mark.parametrize('is_terminal', [True, False])
def test_an_n_below_what_was_just_seen_is_refused_at_once(
    root, monkeypatch, is_terminal
):
    """How many there are is private: a log does not get it."""
    number = made(root).config.data.num_examples
    (root.parent / 'run').rename(root.parent / 'before')
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: is_terminal, raising=False)
    message = refused(root, num_examples=10)
    more = f'{number} training images' if is_terminal else 'more training images than'
    assert message.startswith(f'config.data.num_examples: is 10, but there are {more}')
    assert (str(number) in message) == is_terminal


def test_the_classes_own_names_in_another_order_are_refused(root):
    message = refused(root, class_names='dog/cat')
    assert message.startswith("config.data.class_names: is 'dog/cat', but")
    assert message.endswith("has these classes in another order. Set it to 'cat/dog'.")


def test_a_label_that_is_no_class_is_refused(tmp_path):
    images, labels = np.zeros((20, 8, 8, 1), np.uint8), np.arange(20) % 2
    labels[7] = 10**10
    np.savez(tmp_path / 'x.npz', images=images, labels=labels)
    config = tiny_runs.load_config('recommended', f'npz:{tmp_path}/x.npz,10')
    with pytest.raises(UserError, match='has a label that is not below') as refused:
        Pipeline(config, tmp_path / 'run')
    assert '10000000000' not in str(refused.value)  # it is private
