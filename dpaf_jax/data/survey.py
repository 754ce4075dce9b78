"""A look at a source before anything is decoded: what there is, and what follows from it.

What the survey sees is private, and goes to the terminal of whoever owns the data. What
follows from it (`proposed`) goes into the config, and is public from there on.
"""

import collections
import hashlib
import io
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from dpaf_jax.config import MOST_CLASSES, DataConfig
from dpaf_jax.data.checks import check_sides, splits
from dpaf_jax.data.groups import one_of_each
from dpaf_jax.data.near_copies import near_copies, thumbnail
from dpaf_jax.data.pixels import DEEP, GREY, BadPictureError, to_pixels
from dpaf_jax.data.sources import open_source
from dpaf_jax.data.sources.base import Content, Source, reading
from dpaf_jax.data.subset import drawn
from dpaf_jax.runtime.errors import UserError

SIDES = 8, 16, 32  # of images, where pictures are of several sizes or larger
SHOWN = 3  # examples of a kind
ONE_RECORD_EACH = (
    'epsilon is for one picture: who is in k of them has k times the influence. Leave copies '
    'out, or see config.data.group'
)


class Survey(NamedTuple):
    """What a source holds; private.

    Attributes:
        where: what messages call the source.
        class_names: by label.
        counts: pictures of each class.
        num_train: records of the training split, empty ones included.
        num_test: of the test split.
        sizes: how many pictures there are of each (width, height).
        modes: how many of each of Pillow's modes; '' for what is no picture.
        repeated: names of pictures that are the same to the byte, in groups.
        alike: names of other pictures that look the same, in groups.
        mislabelled: those groups of either kind that have two labels.
        notes: what the source itself has noticed.
        deep: names of pictures with more than 8 bits a channel.
        halved: names of pictures with 16 bits a colour, of which Pillow reads the higher 8.
        unreadable: of each picture that cannot be decoded its name and what is wrong.
    """

    where: str
    class_names: tuple[str, ...]
    counts: tuple[int, ...]
    num_train: int
    num_test: int
    sizes: Mapping[tuple[int, int], int]
    modes: Mapping[str, int]
    repeated: tuple[tuple[str, ...], ...]
    alike: tuple[tuple[str, ...], ...]
    mislabelled: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    deep: tuple[str, ...]
    halved: tuple[str, ...]
    unreadable: tuple[str, ...]


def survey(config: DataConfig) -> Survey:
    """Looks at every picture's head, and at a thumbnail of it.

    Args:
        config: the data section; its num_classes, image_size and channels may be 0.

    Raises:
        UserError: for a source that is missing or malformed, or has a class without
            training images.
    """
    source = drawn(one_of_each(open_source(config), config), config)
    is_test = splits(source, config)
    present = np.flatnonzero(source.is_present)
    labels = source.labels[present]
    if (largest := int(labels.max(initial=0))) >= MOST_CLASSES:
        problem = f'has a label that is not below {MOST_CLASSES}'
        raise UserError(source.where, problem, 'Number classes from 0')
    if labels.min(initial=0) < 0:
        problem = 'has a label below 0'
        raise UserError(source.where, problem, 'Number classes from 0')
    names = source.class_names or tuple(map(str, range(largest + 1)))
    check_sides(source, is_test, names, config)
    seen = _Looks(source)
    if not config.columns:  # rows of numbers are looked at by nobody
        with reading(source.where):
            for i, content in zip(present.tolist(), source.contents(), strict=True):
                seen.take(i, content)
    groups, alike = seen.copies()
    return Survey(
        where=source.where,
        class_names=names,
        counts=tuple(int(np.sum(labels == k)) for k in range(len(names))),
        num_train=int(np.sum(~is_test)),
        num_test=int(np.sum(is_test)),
        sizes=+seen.sizes,
        modes=seen.modes,
        repeated=_named(source, groups),
        alike=_named(source, alike),
        mislabelled=_named(
            source,
            [g for g in groups + alike if len(set(source.labels[g].tolist())) > 1],
        ),
        notes=source.notes,
        deep=tuple(seen.deep),
        halved=tuple(seen.halved),
        unreadable=tuple(seen.unreadable),
    )


class _Looks:
    """What is seen of pictures, one after another."""

    def __init__(self, source: Source):
        self._source = source
        self.sizes: collections.Counter[tuple[int, int]] = collections.Counter()
        self.modes: collections.Counter[str] = collections.Counter()
        self.deep: list[str] = []
        self.halved: list[str] = []
        self.unreadable: list[str] = []
        self._same: dict[bytes, list[int]] = {}
        self._small: dict[int, np.ndarray] = {}  # of the first of each of `_same`

    def take(self, i: int, content: Content) -> None:
        """One more picture, record i of the source."""
        name = self._source.record_id(i)
        size, mode, grey, is_halved = _look(content)
        self.sizes[size] += size != (0, 0)
        self.modes[mode] += 1
        if mode.startswith(DEEP):
            self.deep.append(name)
        elif is_halved:
            self.halved.append(name)
        elif not mode and (fault := _fault(content)):
            self.unreadable.append(f'{name} {fault}')
        copies = self._same.setdefault(_digest(content), [])
        copies.append(i)
        if len(copies) == 1 and grey is not None:
            self._small[i] = grey

    def copies(self) -> tuple[list[list[int]], list[list[int]]]:
        """Records that are the same to the byte, and those that look the same, in groups."""
        places = list(self._small)
        near = near_copies(list(self._small.values()))
        groups = [group for group in self._same.values() if len(group) > 1]
        return groups, [[places[j] for j in group] for group in near]


def _look(content: Content) -> tuple[tuple[int, int], str, np.ndarray | None, bool]:
    """(width, height), mode, thumbnail, and whether half of its bits will be read.

    (0, 0), '', None and False for what cannot be opened.
    """
    try:
        with _opened(content) as picture:
            # Before it is drawn small.
            size, mode, is_halved = picture.size, picture.mode, _is_halved(picture)
            return size, mode, thumbnail(picture), is_halved
    except Exception:  # whatever is wrong: `_fault` or `prepare` says it
        return (0, 0), '', None, False


def _is_halved(picture: Image.Image) -> bool:
    """Whether it has 16 bits a colour, by what Pillow's decoder is told: 'RGB;16B'."""
    tiles = getattr(picture, 'tile', ())  # of files alone
    return picture.mode in ('RGB', 'RGBA') and any(';16' in str(t[3]) for t in tiles)


def _fault(content: Content) -> str:
    """What keeps a picture from being decoded; '' where nothing does."""
    try:
        to_pixels(content, SIDES[0], channels=1, window=(0, 1))
    except BadPictureError as error:
        return str(error)
    return ''


def _opened(content: Content) -> Image.Image:
    if isinstance(content, bytes):
        return Image.open(io.BytesIO(content))
    grey = content.ndim == 3 and content.shape[2] == 1
    return Image.fromarray(content[..., 0] if grey else content)


def _digest(content: Content) -> bytes:
    data = content.tobytes() if isinstance(content, np.ndarray) else content
    return hashlib.blake2b(data, digest_size=16).digest()


def _named(source: Source, groups: list[list[int]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(source.record_id(i) for i in group) for group in groups)


def proposed(found: Survey) -> dict[str, Any]:
    """What a config takes from the data where it says 0, by its field's name.

    - `class_names`: the folders', or those of labels.csv; numbers need none.
    - `image_size`: the pictures' own side where all are squares of one, at most 32;
      else the largest of 8, 16 and 32 that half of them reach.
    - `channels`: 3 where a picture has colours.
    - `num_examples`: the records of the training split.
    - `delta`: a tenth of 1 / N, rounded down to a power of ten times 1, 2 or 5.
    """
    has_colour = any(
        mode and mode not in GREY and not mode.startswith(DEEP) for mode in found.modes
    )
    numbers = [str(k) for k in range(len(found.class_names))]
    named = list(found.class_names) != numbers
    return {
        'num_classes': len(found.class_names),
        'class_names': '/'.join(found.class_names) if named else '',
        'image_size': _side(found.sizes),
        'channels': 3 if has_colour else 1,
        'num_examples': found.num_train,
        'delta': delta_of(found.num_train),
    }


def _side(sizes: Mapping[tuple[int, int], int]) -> int:
    if not sizes:
        return SIDES[-1]
    if len(sizes) == 1:
        ((width, height),) = sizes
        if width == height and SIDES[0] <= width <= SIDES[-1]:
            return width
    short = np.repeat([min(size) for size in sizes], list(sizes.values()))
    half = np.quantile(short, 0.5, method='higher')
    return max((s for s in SIDES if s <= half), default=SIDES[0])


def delta_of(num_examples: int) -> float:
    """A tenth of 1 / N, rounded down to 1, 2 or 5 times a power of ten."""
    most = 0.1 / max(num_examples, 1)
    power = math.floor(math.log10(most))
    digit = max(d for d in (1, 2, 5) if d * 10.0**power <= most * (1 + 1e-9))
    return float(f'{digit}e{power}')


def table(found: Survey) -> str:
    """The survey as lines, for the terminal of the data's owner alone."""
    total = sum(found.counts)
    is_table = not found.modes
    rows = [
        (
            'rows' if is_table else 'pictures',
            f'{total}: {found.num_train} to train on, {found.num_test} to test',
        ),
        *(
            (f'class {k}', f'{name}: {count}')
            for k, (name, count) in enumerate(
                zip(found.class_names, found.counts, strict=True)
            )
        ),
    ]
    if not is_table:
        rows.append(('sizes', _sizes(found.sizes)))
        rows.append(('kinds', _kinds(found.modes)))
    if found.repeated:
        copies = sum(len(group) - 1 for group in found.repeated)
        rows.append(('copies', f'{copies}, such as {_examples(found.repeated)}'))
    if found.alike:
        copies = sum(len(group) - 1 for group in found.alike)
        rows.append(
            ('near copies', f'{copies}, such as {_examples(found.alike, " ~ ")}')
        )
    if found.mislabelled:
        rows.append(('two labels', _examples(found.mislabelled)))
    rows += [('note', note) for note in found.notes]
    if found.halved:
        told = (
            f'{len(found.halved)} pictures have 16 bits a colour; the higher 8 are read'
        )
        rows.append(('note', f'{told}, such as of {found.halved[0]}'))
    if found.repeated or found.alike:
        rows.append(('note', ONE_RECORD_EACH))
    wide = max(len(name) for name, _ in rows)
    lines = [f'  {name:<{wide}}  {text}' for name, text in rows]
    told = '\n'.join([f'{found.where} (private: for your eyes alone)', *lines])
    # A name of a file need not be UTF-8.
    return told.encode('utf-8', 'backslashreplace').decode()


def _sizes(sizes: Mapping[tuple[int, int], int]) -> str:
    if not sizes:
        return 'none'
    if len(sizes) == 1:
        ((width, height),) = sizes
        return f'all {width} x {height}'
    by_area = sorted(sizes, key=math.prod)
    (low, height), (high, tall) = by_area[0], by_area[-1]
    return f'{low} x {height} to {high} x {tall}, {len(sizes)} different ones'


def _kinds(modes: Mapping[str, int]) -> str:
    words = [f'{modes[mode]} {mode}' for mode in sorted(modes) if mode]
    if modes.get(''):
        words.append(f'{modes[""]} that cannot be opened')
    return ', '.join(words)


def _examples(groups: tuple[tuple[str, ...], ...], between: str = ' = ') -> str:
    shown = [between.join(group[:SHOWN]) for group in groups[:SHOWN]]
    return '; '.join(shown) + ('; ...' if len(groups) > SHOWN else '')
