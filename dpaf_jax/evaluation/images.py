"""Images to compare, from a folder, an archive, a release, or a source of a config."""

import collections
import dataclasses
import io
import pathlib
from typing import Any

import numpy as np
from PIL import Image

from dpaf_jax.config import MOST_CLASSES, DataConfig, check_channels
from dpaf_jax.data.checks import splits
from dpaf_jax.data.decode import decoded
from dpaf_jax.data.groups import one_of_each
from dpaf_jax.data.pixels import DEEP, GREY
from dpaf_jax.data.sources import SOURCES, open_source
from dpaf_jax.data.sources.base import Source, counting_names, only, reading
from dpaf_jax.data.sources.listing import list_folders, list_pictures, read_pictures
from dpaf_jax.data.subset import drawn
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.release.bundle import GENERATOR, RELEASE, load_release
from dpaf_jax.release.parquet import read_parquet
from dpaf_jax.runtime.errors import UserError

OF_FACES = 'celeba', 'ffhq', 'tfds:celeb_a'  # sources whose labels are an attribute
FILES = '.npz', '.parquet'  # that hold images
# What a release states of how pictures are read, and of which are held out.
READING, SPLIT = ('fit', 'window'), ('test_fraction', 'group', 'subset')


def alike(real: str, synthetic: str, given: dict[str, Any]) -> DataConfig:
    """How real images are read and split, so that they stand beside the synthetic ones.

    Those of a release have learnt from all but the test images of its own run: another split
    would test on images of the training. A `test_fraction` that is given is for other images
    than the run's; then nobody is left out.

    Args:
        real, synthetic: `--real` and `--synthetic`.
        given: fields of `DataConfig`.
    """
    side, channels = shape(synthetic, DataConfig())
    fields: dict[str, Any] = {'image_size': side, 'channels': channels}
    if released := _released(synthetic):
        names = READING + SPLIT * ('test_fraction' not in given)
        fields |= {name: getattr(released, name) for name in names}
        if real.startswith(OF_FACES):
            fields['attribute'] = released.attribute
    return DataConfig(**fields | given)


def synthetic(text: str, num: int, data: DataConfig) -> tuple[Labelled, int]:
    """All images of a folder or an archive, or `num` that a release draws.

    Of a source with a test split of its own only the rest is taken: who has put real test
    images there would train on them.

    Args:
        text: `--synthetic`: a path, or a source such as `npz:<path>`.
        num: images of a release.
        data: image size and channels; 0 classes.

    Returns:
        The images, and how many test images were left out.

    Raises:
        UserError: nothing of the kind is there.
    """
    if _released(text):
        release = load_release(pathlib.Path(text).expanduser())
        return Labelled(*release.sample(num, seed=0)), 0
    source, config = opened(text, data)
    kept = np.ones(len(source.labels), bool)
    if source.is_test is not None:
        kept = ~source.is_test
        source = only(source, kept)
        if not kept.any():
            raise UserError(
                f'--synthetic: {text}', 'has test images alone', 'Give others'
            )
    images = np.stack(list(decoded(source, config)))
    labels = present_labels(source, f'--synthetic: {text}')
    return Labelled(images, labels), int(np.sum(~kept))


def real(text: str, data: DataConfig, of_run: str = '') -> tuple[Labelled, Labelled]:
    """The training and the test images of a folder, an archive or a source.

    Args:
        text: `--real`: a path, or a source as `config.data.source` names it.
        data: of `alike`; with a `test_fraction` of 0 all images of a source without a test
            split are test images.
        of_run: the kind of source that a release's run has read, where images are to be
            split as there; '': they are split anew.

    Raises:
        UserError: nothing of the kind is there, or images cannot be split as in the run.
    """
    if (pathlib.Path(text).expanduser() / GENERATOR).exists():
        raise UserError(f'--real: {text}', 'is a release', 'Give real images')
    source, config = opened(text, data, '--real')
    if of_run and source.is_test is None and _kind(config.source) != of_run:
        # A hash of each record's name decides, and another layout has other names.
        raise UserError(
            f'--real: {text}',
            f'cannot be split as in the run, which has read a source of the kind {of_run}: '
            'images that the generator has learnt from would be test images',
            'Give the files of the run, or images that are none of its training images '
            'with --test_fraction=0',
        )
    source = _of_the_run(source, config)
    is_test = np.ones(len(source.labels), bool)
    if source.is_test is not None or config.test_fraction:
        is_test = splits(source, config)
    is_test = is_test[source.is_present]
    images = np.stack(list(decoded(source, config)))
    labels = present_labels(source, f'--real: {text}')
    if not is_test.any():
        remedy = 'Raise --test_fraction, or set it to 0: then all are test images'
        raise UserError('--real', 'has no test images', remedy)
    return (
        Labelled(images[~is_test], labels[~is_test]),
        Labelled(images[is_test], labels[is_test]),
    )


def kind_of_run(text: str) -> str:
    """The kind of source that a release's run has read; '' for what is no release."""
    released = _released(text)
    return _kind(released.source) if released else ''


def _kind(source: str) -> str:
    return source.partition(':')[0]


def _of_the_run(source: Source, config: DataConfig) -> Source:
    """One picture of each group, and the subset, where a release has them."""
    try:
        return drawn(one_of_each(source, config), config)
    except UserError as error:
        remedy = 'Give the images of that run; of others, say --test_fraction'
        problem = f"does not fit the release's {error.where}: it {error.problem}"
        raise UserError('--real', problem, remedy) from error


def class_names(text: str, data: DataConfig, flag: str) -> tuple[str, ...]:
    """Of a source that has names, or a release that states them, by label; else none."""
    if config := _released(text):
        return config.names if config.class_names else ()
    return tuple(opened(text, data, flag)[0].class_names)


def stated_classes(text: str) -> int:
    """How many classes a release has; 0: it is none, and its labels tell."""
    config = _released(text)
    return config.num_classes if config else 0


def _released(text: str) -> DataConfig | None:
    """The data's config of a release of images; None: it is none."""
    path = pathlib.Path(text).expanduser()
    if not (path / GENERATOR).exists():
        return None
    data = load_release(path).config.data
    if data.columns:
        raise UserError(text, 'is the release of a table', 'Give images')
    return data


def shape(text: str, data: DataConfig) -> tuple[int, int]:
    """Side and channels that images are compared at.

    Of pictures the side that most have, and colour where one of them has it.
    """
    if config := _released(text):
        return config.image_size, config.channels
    source, _ = opened(text, data)
    sides: collections.Counter[int] = collections.Counter()
    is_colour = False
    present = np.flatnonzero(source.is_present).tolist()
    with reading(source.where):
        for i, content in zip(present, source.contents(), strict=True):
            if not isinstance(content, bytes):  # an archive's are all alike
                channels = content.shape[2] if content.ndim == 3 else 1
                return min(content.shape[:2]), channels
            side, has_colour = _head(content, source.record_id(i))
            sides[side] += 1
            is_colour |= has_colour
    if not sides:
        raise UserError(text, 'has no images', 'Give some')
    most = max(sides.values())
    return min(side for side, n in sides.items() if n == most), 3 if is_colour else 1


def _head(content: bytes, name: str) -> tuple[int, bool]:
    """The shorter side of a picture, and whether it has colour."""
    try:
        picture = Image.open(io.BytesIO(content))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        problem = 'is damaged, or is no picture'
        raise UserError(name, problem, 'Remove it, or save it again') from error
    is_grey = picture.mode in GREY or picture.mode.startswith(DEEP)
    return min(picture.size), not is_grey


def opened(
    text: str, data: DataConfig, flag: str = '--synthetic'
) -> tuple[Source, DataConfig]:
    """The source that a path or a source's name means, and its config."""
    path = pathlib.Path(text).expanduser()
    _refuse_run(path, flag)
    if path.suffix.lower() == '.parquet' and path.is_file():
        return _of_parquet(path, flag), data
    if path.exists() or text.partition(':')[0] not in SOURCES:
        if not path.exists():
            kinds = ', '.join(SOURCES)
            remedy = f'Give a folder, an .npz file, a release, or a source: {kinds}'
            raise UserError(f'{flag}: {text}', 'is not there', remedy)
        text = f'folder:{path}' if path.is_dir() else f'npz:{path}'
    if text.startswith('table:'):
        raise UserError(text, 'is a table', 'Give images')
    config = dataclasses.replace(data, source=text)
    if flag != '--real' and not text.startswith(OF_FACES):
        config = dataclasses.replace(config, attribute='')  # that of the real ones
    check_channels(config)
    folder = pathlib.Path(text.partition(':')[2]).expanduser()
    flat = text.startswith('folder:') and folder.is_dir() and not list_folders(folder)
    if flat and not (folder / 'labels.csv').exists():
        return unlabelled(folder), config
    try:
        return open_source(config), config
    except UserError as error:
        names = {
            'config.data.attribute': '--attribute',
            'config.data.annotations': '--annotations',
            'config.data.source': flag,
        }
        if error.where not in names:
            raise
        raise UserError(names[error.where], error.problem, error.remedy) from error


def _refuse_run(path: pathlib.Path, flag: str) -> None:
    if (path / RELEASE / GENERATOR).exists():
        remedy = 'Give real images' if flag == '--real' else f'Give {path / RELEASE}'
        raise UserError(f'{flag}: {path}', "is a run's folder", remedy)


def _of_parquet(path: pathlib.Path, flag: str) -> Source:
    """A file that `dpaf_jax.sample` wrote."""
    names, labels, contents = read_parquet(path, flag)
    return Source(
        where=str(path),
        class_names=names,
        labels=labels,
        record_id=str,
        is_test=None,
        contents=contents,
    )


def unlabelled(folder: pathlib.Path) -> Source:
    """The pictures of a folder without classes, all of one."""
    names = list(list_pictures(folder))
    if not names:
        files = [str(f) for f in sorted(folder.iterdir()) if f.suffix in FILES]
        remedy = f'Give {files[0]}' if files else 'Give a folder that does'
        raise UserError(str(folder), 'holds no pictures', remedy)
    return Source(
        where=str(folder),
        class_names=counting_names(1),
        labels=np.zeros(len(names), np.int64),
        record_id=names.__getitem__,
        is_test=None,
        contents=lambda: read_pictures(folder, names),
    )


def present_labels(source: Source, where: str) -> np.ndarray:
    """[n] int32 labels of the records that have an image.

    Raises:
        UserError: one is no class.
    """
    labels = source.labels[source.is_present]
    for is_wrong, problem in (
        (labels < 0, 'has a label below 0'),
        (labels >= MOST_CLASSES, f'has a label that is not below {MOST_CLASSES}'),
    ):
        if is_wrong.any():
            raise UserError(where, problem, 'Number classes from 0')
    return labels.astype(np.int32)
