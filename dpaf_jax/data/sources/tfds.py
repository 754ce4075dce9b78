"""tfds:<name>: a prepared TensorFlow Datasets directory, read without TensorFlow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources import attributes
from dpaf_jax.data.sources.base import Source, counting_names
from dpaf_jax.runtime.errors import UserError


def open_source(path: str, config: DataConfig) -> Source:
    """Lists the records of a data set prepared in the array_record format.

    Its splits are used as they are: train and, where there is one, test; otherwise
    a hash of the position in train decides.

    Args:
        path: `<name>`, a TFDS name with an optional config and version
            ('emnist/letters:3.1.0'), or `<name>@<data_dir>`.
        config: the data section; `attribute` picks the label of a data set that
            has CelebA's attributes instead of a label.

    Raises:
        UserError: TFDS not installed; the data set unknown, not prepared, prepared
            in another format, damaged, without images, or without labels where more than
            one class is asked for.
    """
    name, _, data_dir = path.partition('@')
    builder = _open_builder(name, data_dir)
    label_of, class_names = _labelling(builder.info.features, config)
    sides = _open_splits(builder, config)
    labels = [
        label_of(record) for side in sides for record in _records(side, config.source)
    ]
    is_empty = np.array([label is None for label in labels], bool)
    num_train = len(sides[0])

    def record_id(i: int) -> str:
        return f'train[{i}]' if i < num_train else f'test[{i - num_train}]'

    def contents() -> Iterator[bytes]:
        for side, first in zip(sides, (0, num_train), strict=False):
            present = np.flatnonzero(~is_empty[first : first + len(side)])
            for record in _records(side, config.source, present.tolist()):
                yield record['image']

    return Source(
        where=config.source,
        class_names=class_names,
        labels=np.array([label or 0 for label in labels], np.int64),
        record_id=record_id,
        is_test=None if len(sides) == 1 else np.arange(len(labels)) >= num_train,
        contents=contents,
        is_empty=is_empty,
    )


def _open_builder(name: str, data_dir: str) -> Any:
    source = f'tfds:{name}'
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        remedy = 'Run: pip install tensorflow-datasets'
        problem = f'{source} needs tensorflow-datasets, which is not installed'
        raise UserError('config.data.source', problem, remedy) from error
    try:
        builder = tfds.builder(name, data_dir=data_dir or None)
    except (ValueError, AssertionError) as error:  # TFDS lists all names it has
        problem = f'{source} is no data set of TFDS, and not in its data directory'
        remedy = 'Correct the name, or add the directory: tfds:<name>@<data_dir>'
        raise UserError('config.data.source', problem, remedy) from error
    if not builder.data_path.exists() or not builder.info.splits:
        raise UserError(
            'config.data.source',
            f'{source} is not prepared in {builder.data_path}',
            f"In a clone, run: pip install '.[tfds]', then {_prepare(name, data_dir)}; or use "
            'a file of your own, --config.data.source=npz:/path/to/images.npz',
        )
    if builder.info.file_format.value != 'array_record':
        raise UserError(
            'config.data.source',
            f'{source} is prepared as {builder.info.file_format.value} in '
            f'{builder.data_path}, which cannot be read without TensorFlow',
            f'Delete it or choose another data_dir, then {_prepare(name, data_dir)}',
        )
    return builder


def _prepare(name: str, data_dir: str) -> str:
    place = f' --data_dir={data_dir}' if data_dir else ''
    return f'tfds build {name} --file_format=array_record{place}'


_LabelFn = Callable[[Mapping[str, Any]], int | None]


def _labelling(features: Any, config: DataConfig) -> tuple[_LabelFn, tuple[str, ...]]:
    names = sorted(features)
    if 'image' not in names or features['image'].np_dtype != np.uint8:
        problem = f'has no 8-bit feature called image; it has {", ".join(names)}'
        raise UserError(config.source, problem, 'Use a data set of labelled images')
    if 'label' in names:
        attributes.check_attribute(config)
        class_names = getattr(features['label'], 'names', None)
        class_names = class_names or counting_names(config.num_classes)
        return (lambda record: int(record['label'])), tuple(class_names)
    if 'attributes' in names and 'Male' in features['attributes']:
        attributes.check_attribute(config, *attributes.CELEBA)
        wanted = config.attribute
        return (
            lambda record: attributes.celeba_label(wanted, record['attributes']),
            attributes.celeba_class_names(wanted),
        )
    if config.num_classes == 1:
        attributes.check_attribute(config)
        return (lambda record: 0), counting_names(1)
    problem = f'has no feature called label; it has {", ".join(names)}'
    remedy = 'Use labelled images, or take all as one class: config.data.num_classes=1'
    raise UserError(config.source, problem, remedy)


def _open_splits(builder: Any, config: DataConfig) -> list[Any]:
    import tensorflow_datasets as tfds

    if 'train' not in builder.info.splits:
        found = ', '.join(sorted(builder.info.splits))
        problem = f'has no train split; it has {found}'
        raise UserError(config.source, problem, 'Use a data set that has one')
    skip = {'image': tfds.decode.SkipDecoding()}  # decoded later, in threads
    sides = [side for side in ('train', 'test') if side in builder.info.splits]
    return [builder.as_data_source(side, decoders=skip) for side in sides]


def _records(
    side: Any, source: str, wanted: Sequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    for i in range(len(side)) if wanted is None else wanted:
        try:
            record = side[i]
        except (OSError, RuntimeError, ValueError, IndexError) as error:
            remedy = 'Delete its directory and prepare it again'
            problem = f'record {i} cannot be read ({error})'
            raise UserError(source, problem, remedy) from error
        yield record
