"""A synthetic data set as one Parquet file, as the Hugging Face Hub has them, and back.

Images are PNG bytes under the features of the `datasets` library, which the file names in
its metadata; rows of a table are one column each. pyarrow is an extra, `parquet`.
"""

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.release.dataset_card import dataset_card
from dpaf_jax.release.drawing import BATCH, Release
from dpaf_jax.release.export import in_units
from dpaf_jax.release.pictures import picture, png_bytes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import write_text, written_whole
from dpaf_jax.runtime.progress import ProgressFn

CARD = 'README.md'


def write_parquet(
    path: pathlib.Path,
    release: Release,
    labels: np.ndarray,
    seed: int | None,
    on_progress: ProgressFn = lambda num: None,
) -> None:
    """Writes the file batch by batch, and README.md beside it: the data set's card.

    Args:
        path: of the file.
        release: that the images are drawn from.
        labels: [N] integers; theirs.
        seed: as for `Release.generate`, and so is `on_progress`.

    Raises:
        UserError: pyarrow is not there, or a README.md is.
    """
    pa, pq = _pyarrow('--out', path, 'write .npz')
    card = path.parent / CARD
    if card.exists():
        remedy = f'Give --out a folder of its own, such as synthetic/{path.name}'
        raise UserError(str(card), 'exists, and is not written over', remedy)
    data = release.config.data
    features = _features(data)
    schema = pa.schema(
        [(name, _arrow_type(pa, kind)) for name, kind in features.items()],
        metadata={'huggingface': json.dumps({'info': {'features': features}})},
    )
    told = dataset_card(release, labels, features, path.name)
    with (
        written_whole(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression='zstd') as writer,
    ):
        for columns in _batches(release, labels, seed, on_progress):
            writer.write_table(pa.table(columns, schema=schema))
    try:
        write_text(card, told)
    except OSError:  # neither without the other
        path.unlink()
        raise


class Pictures(NamedTuple):
    """What a file of images holds.

    Attributes:
        class_names: by label.
        labels: [n] int64.
        contents: the encoded pictures, in order; one batch of them in memory.
    """

    class_names: tuple[str, ...]
    labels: np.ndarray
    contents: Callable[[], Iterator[bytes]]


def read_parquet(path: pathlib.Path, flag: str) -> Pictures:
    """What `write_parquet` wrote of images.

    Args:
        path: of the file.
        flag: that names it.

    Raises:
        UserError: pyarrow is not there, or the file is damaged or another.
    """
    pa, pq = _pyarrow(flag, path, 'give an .npz file or a folder')
    try:
        with pq.ParquetFile(path) as file:
            info = json.loads(file.schema_arrow.metadata[b'huggingface'])
            names = tuple(info['info']['features']['label']['names'])
            labels = file.read(['label']).column('label').to_numpy()
            if 'image' not in file.schema_arrow.names or not len(labels):
                raise KeyError('image')
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        problem = 'is damaged, or no file of images that dpaf_jax.sample wrote'
        remedy = 'Give an .npz file or a folder'
        raise UserError(f'{flag}: {path}', problem, remedy) from error
    return Pictures(names, labels.astype(np.int64), lambda: _pictures(pq, path))


def _pictures(pq: Any, path: pathlib.Path) -> Iterator[bytes]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH, columns=['image']):
            yield from (row['bytes'] for row in batch.column('image').to_pylist())


def _pyarrow(flag: str, path: pathlib.Path, otherwise: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        problem = f'is {path}, and pyarrow is not installed'
        remedy = f'pip install pyarrow, or {otherwise}'
        raise UserError(flag, problem, remedy) from None
    return pyarrow, pyarrow.parquet


def _features(data: DataConfig) -> dict[str, Any]:
    """Columns as `datasets.Features.to_dict` has them."""
    if not data.columns:
        label = {'names': list(data.names), '_type': 'ClassLabel'}
        return {'image': {'_type': 'Image'}, 'label': label}
    number = {'dtype': 'float64', '_type': 'Value'}
    return {
        **{column.name: number for column in data.table},
        data.label: {'dtype': 'int64', '_type': 'Value'},
    }


def _arrow_type(pa: Any, feature: dict[str, Any]) -> Any:
    if feature['_type'] == 'Image':
        return pa.struct({'bytes': pa.binary(), 'path': pa.string()})
    return pa.float64() if feature.get('dtype') == 'float64' else pa.int64()


def _batches(
    release: Release, labels: np.ndarray, seed: int | None, on_progress: ProgressFn
) -> Iterator[dict[str, Any]]:
    data = release.config.data
    start = 0
    for images in release.generate(labels, seed, on_progress):
        meant = labels[start : start + len(images)].astype(np.int64)
        start += len(images)
        if data.columns:
            rows = in_units(data, images)
            named = zip((column.name for column in data.table), rows.T, strict=True)
            yield {**dict(named), data.label: meant}
        else:
            # As `datasets.Image` stores them.
            files = [{'bytes': png_bytes(picture(i)), 'path': None} for i in images]
            yield {'image': files, 'label': meant}
