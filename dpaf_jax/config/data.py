"""The data section of a config: which images, and what is publicly known about them."""

import dataclasses
import math
import re
from typing import NamedTuple

from dpaf_jax.config.fields import (
    at_least,
    between,
    image_source,
    one_of,
    plain,
    private_path,
)
from dpaf_jax.runtime.errors import UserError

MOST_CLASSES = 100_000
# Kinds of sources that are read from a path; a release has the kind alone.
IMAGE_PATHS, TABLE_PATHS = ('folder', 'npz', 'celeba', 'ffhq'), ('table',)
IMAGES = rf'digits|(tfds|{"|".join(IMAGE_PATHS)}):.+'  # sources of them
# The columns of CelebA's list_attr_celeba.txt, as it spells them.
_FLAGS = """
    5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald
    Bangs Big_Lips Big_Nose Black_Hair Blond_Hair Blurry Brown_Hair
    Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee Gray_Hair
    Heavy_Makeup High_Cheekbones Male Mouth_Slightly_Open Mustache
    Narrow_Eyes No_Beard Oval_Face Pale_Skin Pointy_Nose
    Receding_Hairline Rosy_Cheeks Sideburns Smiling Straight_Hair
    Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick
    Wearing_Necklace Wearing_Necktie Young
"""
CELEBA_FLAGS = tuple(_FLAGS.split())
LONGEST_NAME = 200  # bytes of a class: a folder and its file have room for it


class Column(NamedTuple):
    """A continuous column and its public bounds, never those of the data.

    Attributes:
        name: in the file.
        low: what lies below counts as this.
        high: what lies above counts as this.
    """

    name: str
    low: float
    high: float


def _column(text: str) -> Column:
    name, _, bounds = text.strip().partition(':')
    low, _, high = bounds.partition(':')
    try:
        made = Column(name, float(low), float(high))
    except ValueError:
        made = Column(name, math.nan, math.nan)
    if not name or not -math.inf < made.low < made.high < math.inf:
        problem = f'has the entry {text!r}'
        remedy = (
            "Write name:low:high, such as 'age:0:120,bmi:10:60', from public bounds"
        )
        raise UserError('config.data.columns', problem, remedy)
    return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, and what is publicly known about them."""

    source: str = image_source(
        'digits',
        'Source of the data: digits (embedded); tfds:<name>; folder:, npz:, celeba: or '
        'ffhq: and a path; table:<path>, a CSV file or an npz archive.',
    )
    image_size: int = between(
        16,
        0,
        1024,
        'Side of the images in pixels, at least 4; pictures are made square (fit), '
        'then resized to it. 0: from the data.',
    )
    channels: int = at_least(
        1, 0, 'Number of channels: 1 for grey, 3 for colour; 0: from the data.'
    )
    num_classes: int = between(
        10,
        0,
        MOST_CLASSES,
        'Number of classes (K); labels are 0 .. K - 1. 0: from the data.',
    )
    num_examples: int = at_least(
        0,
        0,
        'Number of training records (N), or any larger number; it is public. 0: from '
        'the data.',
    )
    test_fraction: float = between(
        0.2,
        0.0,
        0.9,
        'Expected share of records that a hash of their names holds out for testing, '
        'where the source has no test split; 0: none.',
    )
    attribute: str = one_of(
        '',
        ('', 'gender', 'hair', *CELEBA_FLAGS),
        "Attribute that is the label of a face: 'gender' for ffhq; 'gender', 'hair' or "
        "one of CelebA's own, such as 'Smiling', for celeba and tfds:celeb_a.",
    )
    annotations: str = private_path(
        'Path of the FFHQ features JSON, a folder or a file, for the source ffhq.'
    )
    class_prior: tuple[float, ...] = plain(
        (), 'Public class probabilities by label; empty: uniform, or by noisy_prior.'
    )
    columns: str = plain(
        '',
        "Columns of a table's numbers with public bounds, as name:low:high, such as "
        "'age:0:120,bmi:10:60'.",
    )
    label: str = plain('label', "Name of a table's column of labels, 0 .. K - 1.")
    cache: str = private_path(
        'Folder for decoded images, which are private; empty: in the workdir.'
    )
    class_names: str = plain(
        '',
        "Public names of the classes by label, such as 'cat/dog'; '?': from the data; "
        'empty: their numbers.',
    )
    group: str = plain(
        '',
        'Key of pictures that belong together, of which one takes part in training: a '
        "column of labels.csv, or a pattern for files' paths with ( ) around it; "
        'empty: each picture stands for itself.',
    )
    fit: str = one_of(
        'crop',
        ('crop', 'pad'),
        'Way to make a picture square: its centre is cut out (crop), or all of it is '
        'kept, on black (pad).',
    )
    window: str = plain(
        '',
        'Grey levels low:high that become black and white in pictures with more than '
        "8 bits, such as '0:4095', from public knowledge; empty: such pictures are "
        'refused.',
    )
    noisy_prior: float = between(
        0.0,
        0.0,
        0.5,
        'Share of epsilon for a noisy class histogram, which training and samples '
        'follow; 0: they follow class_prior.',
    )
    subset: int = at_least(
        0,
        0,
        'Number of training records that take part, which DPImageBench draws from an '
        'archive or a TFDS data set; the others stay out. 0: all.',
    )

    @property
    def grey_levels(self) -> tuple[float, float] | None:
        """The window as numbers: what becomes 0 and what 255."""
        if not self.window:
            return None
        low, _, high = self.window.partition(':')
        return float(low), float(high)

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called in public, by label."""
        if not self.class_names:
            return tuple(map(str, range(self.num_classes)))
        return tuple(self.class_names.split('/'))

    @property
    def table(self) -> tuple['Column', ...]:
        """The columns of a table in their order; empty for images."""
        return tuple(map(_column, self.columns.split(','))) if self.columns else ()

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, C) of a record as it is stored: a table's row is one line of numbers."""
        if self.columns:
            return 1, len(self.table), 1
        return self.image_size, self.image_size, self.channels

    @property
    def records(self) -> str:
        """What people call them."""
        return 'rows' if self.columns else 'images'

    @property
    def prior(self) -> tuple[float, ...]:
        """The public class probabilities, [num_classes], summing to 1."""
        if not self.class_prior:
            return (1 / self.num_classes,) * self.num_classes
        return self.class_prior


def check_decided(data: DataConfig) -> None:
    """Refuses fields that are still open; UserError naming the field."""
    for name, least in (('num_classes', 1), ('image_size', 4), ('channels', 1)):
        value = getattr(data, name)
        if value < least:
            where = f'config.data.{name}'
            raise UserError(where, f'is {value}', f'It must be at least {least}')


def check_channels(data: DataConfig) -> None:
    """Refuses what no source can deliver; UserError naming the field."""
    if data.channels not in (0, 1, 3):  # 0: by the data
        remedy = 'Use 1 for grey or 3 for colour'
        raise UserError('config.data.channels', f'is {data.channels}', remedy)


def check_data(data: DataConfig) -> None:
    """Refuses fields that do not fit each other; UserError naming one of them."""
    check_source(data)
    check_channels(data)
    _check_names(data)
    check_group(data)
    _check_window(data)
    prior = data.class_prior
    if prior and data.noisy_prior:
        problem = f'is {data.noisy_prior:g}, where config.data.class_prior is stated'
        remedy = 'Keep one: a noisy histogram is for a prior that nobody knows'
        raise UserError('config.data.noisy_prior', problem, remedy)
    if prior and (
        len(prior) != data.num_classes or min(prior) <= 0 or abs(sum(prior) - 1) > 1e-6
    ):
        raise UserError(
            'config.data.class_prior',
            f'is {prior}',
            f'Give {data.num_classes} positive numbers that sum to 1, from public knowledge',
        )
    names = [column.name for column in data.table]
    if len(set(names)) < len(names):
        problem = f'is {data.columns!r}, with a name twice'
        raise UserError('config.data.columns', problem, 'Keep one of each')


def check_source(data: DataConfig) -> None:
    """Refuses an unknown kind, a source without a path, what does not fit one of its kind."""
    if not re.fullmatch(rf'{IMAGES}|table:.+', data.source):
        raise UserError(
            'config.data.source',
            f'is {data.source!r}',
            "Use 'digits', 'tfds:<name>', or folder:, npz:, celeba:, ffhq: or table: and "
            'a path',
        )
    if bool(data.columns) != data.source.startswith('table:'):
        raise UserError(
            'config.data.columns',
            f'is {data.columns!r} with the source {data.source!r}',
            'A table needs columns and their public bounds, such as '
            "'age:0:120,bmi:10:60'; only a table has them",
        )
    _check_subset(data)


def name_problem(name: str) -> str:
    """Why a class cannot have this name in public; '' where it can."""
    problems = {
        'is empty': not name,
        'has a slash': '/' in name,
        f'is longer than {LONGEST_NAME} bytes': len(name.encode()) > LONGEST_NAME,
        'has a line break': name.splitlines() != [name],
        'begins with a dot': name.startswith('.'),
        'begins or ends with a blank': name.strip() != name,
        'has a character that cannot be printed': not name.isprintable(),
    }
    return next((problem for problem, is_so in problems.items() if is_so), '')


def _check_names(data: DataConfig) -> None:
    names, problem = data.names, ''
    if bad := [name for name in names if name_problem(name)]:
        problem = f', where {bad[0]!r} {name_problem(bad[0])}'
    elif len(names) != data.num_classes:
        problem = f', with {len(names)} of them'
    elif len(set(names)) < len(names):
        problem = ', with a name twice'
    if problem:
        raise UserError(
            'config.data.class_names',
            f'is {data.class_names!r}{problem}',
            f'Give {data.num_classes} different names with / between them, or none',
        )


def check_group(data: DataConfig) -> None:
    """UserError where `group` is no pattern, or the source has no names."""
    if data.group and not data.source.startswith(('folder:', 'celeba:', 'ffhq:')):
        kind = data.source.partition(':')[0]
        problem = (
            f'is {data.group!r}, but records of {kind} are known by their place alone'
        )
        remedy = 'Only files have names; use a folder, or leave it out'
        raise UserError('config.data.group', problem, remedy)
    if '(' not in data.group:
        return
    remedy = "Give a pattern with one pair of parentheses, such as '([^/_]*)_[^/]*$'"
    try:
        groups = re.compile(data.group).groups
    except re.error as error:
        problem = f'is {data.group!r} ({error})'
        raise UserError('config.data.group', problem, remedy) from error
    if groups != 1:
        raise UserError('config.data.group', f'is {data.group!r}', remedy)


def _check_subset(data: DataConfig) -> None:
    """UserError where a part of the records is asked for that have no places of their own."""
    if data.subset and not data.source.startswith(('npz:', 'tfds:')):
        kind = data.source.partition(':')[0]
        problem = (
            f'is {data.subset}, but a file more or less in {kind} moves the others'
        )
        remedy = (
            'Only npz: and tfds: have fixed places; use one of them, or set it to 0'
        )
        raise UserError('config.data.subset', problem, remedy)


def _check_window(data: DataConfig) -> None:
    try:
        low, high = data.grey_levels or (0.0, 1.0)
    except ValueError:
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        remedy = "Write low:high, two numbers, such as '0:4095', or nothing"
        raise UserError('config.data.window', f'is {data.window!r}', remedy)
