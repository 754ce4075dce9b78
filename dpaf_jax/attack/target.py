"""What is attacked: a finished run's release, samples and data; and where results go."""

import csv
import dataclasses
import io
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from dpaf_jax.config import Column
from dpaf_jax.data import Dataset, load, read_manifest
from dpaf_jax.data.manifest import Manifest
from dpaf_jax.release.bundle import generator_checksum, load_release
from dpaf_jax.release.drawing import Release
from dpaf_jax.release.export import read_npz
from dpaf_jax.release.pictures import png_bytes
from dpaf_jax.release.samplers.dpaf import as_trained
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import json_text, read_json, write_bytes
from dpaf_jax.runtime.text import now
from dpaf_jax.training.workdir import NOT_PRIVATE, Workdir

WARNING = (
    'NOT PRIVATE: made from real training images; no epsilon covers it. '
    'Do not publish it and do not put it beside the release.'
)


@dataclasses.dataclass(frozen=True)
class Target:
    """Everything that an attack may look at.

    Attributes:
        synthetic: [n, H, W, C] uint8, what the generator made; of a table rows
            [n, 1, F, 1] float32, 0 and 1 at the columns' public bounds, as all below.
        members: [N, H, W, C] uint8, the training images.
        labels: [N] int32, theirs.
        non_members: [num_test, H, W, C] uint8, the held-out images.
        privacy: the content of the release's privacy.json.
        folder: where results go; in `nonprivate/`.
        columns: of a table; none for images.
        generator: checksum of the weights, so that a report sees whose result this is.
    """

    synthetic: np.ndarray
    members: np.ndarray
    labels: np.ndarray
    non_members: np.ndarray
    privacy: dict[str, Any]
    folder: pathlib.Path
    columns: tuple[Column, ...] = ()
    generator: str = ''

    @property
    def records(self) -> str:
        """What they are called."""
        return 'rows' if self.columns else 'images'

    def write_json(self, name: str, content: dict[str, Any]) -> pathlib.Path:
        """Writes `<name>_NOT_PRIVATE.json`: warning, time and generator first."""
        head = {'warning': WARNING, 'when': now(), 'generator': self.generator}
        text = json_text(head | content)
        return self._write(f'{name}{NOT_PRIVATE}.json', text.encode())

    def write_png(self, name: str, image: Image.Image) -> pathlib.Path:
        """Writes `<name>_NOT_PRIVATE.png`."""
        return self._write(f'{name}{NOT_PRIVATE}.png', png_bytes(image))

    def write_csv(self, name: str, lines: Iterable[Sequence[Any]]) -> pathlib.Path:
        """Writes `<name>_NOT_PRIVATE.csv`, the warning first."""
        text = io.StringIO()
        csv.writer(text).writerows([[WARNING], *lines])
        return self._write(f'{name}{NOT_PRIVATE}.csv', text.getvalue().encode())

    def _write(self, name: str, content: bytes) -> pathlib.Path:
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        write_bytes(self.folder / f'{NOT_PRIVATE[1:]}.txt', f'{WARNING}\n'.encode())
        write_bytes(self.folder / name, content)
        return self.folder / name


def open_target(
    workdir: str | os.PathLike[str], data: str | os.PathLike[str] | None = None
) -> Target:
    """Opens a finished run.

    Args:
        workdir: of the run, with `release/` and, if they were drawn, `samples/`.
        data: folder of the prepared data, where it is not in the workdir
            (`config.data.cache`).

    Returns:
        The target; real images are memory-mapped. Its synthetic images are those of the run,
        or drawn anew by `samplers.dpaf.as_trained`, if the run does something to its images.

    Raises:
        UserError: there is no release or no data, or they do not fit each other.
    """
    paths = Workdir(workdir)
    if not paths.release.is_dir():
        raise UserError(
            '--workdir',
            f'{paths.root} holds no release',
            'Give the folder of a finished run: its --workdir, not the release itself',
        )
    release = load_release(paths.release)
    real = _real(paths, data, release)
    synthetic = _synthetic(paths, release)
    if synthetic.shape[1:] != real.images.shape[1:]:
        raise UserError(
            str(paths.decoded(os.fspath(data or ''))),
            f'holds records of {real.images.shape[1:]}, the release makes '
            f'{synthetic.shape[1:]}',
            'Give the data that the run was trained on',
        )
    return Target(
        synthetic=synthetic,
        members=real.images,
        labels=real.labels,
        non_members=real.test_images,
        privacy=release.privacy,
        folder=paths.attacks,
        columns=release.config.data.table,
        generator=generator_checksum(paths.release),
    )


def _real(
    paths: Workdir, data: str | os.PathLike[str] | None, release: Release
) -> Dataset:
    """The records that the run was trained on, as they were prepared."""
    directory = paths.decoded(os.fspath(data or ''))
    manifest = read_manifest(directory)
    if manifest is None:
        raise UserError(
            '--data' if data else '--workdir',
            f'{directory} holds no prepared data',
            'An attack needs the training images: give the folder that config.data.cache '
            'named as --data, or prepare them again (python -m dpaf_jax.main '
            '--stage=prepare)',
        )
    trained_on = (read_json(paths.fingerprint) or {}).get('data checksum')
    if trained_on and trained_on != manifest.checksum:
        raise UserError(
            str(directory),
            'holds other records than the run was trained on',
            'Give the data that the run was trained on',
        )
    return load(_settings_of(manifest, release.config.data), directory)


def _synthetic(paths: Workdir, release: Release) -> np.ndarray:
    """The run's own samples, or others where something was done to those."""
    plain = as_trained(release.config)
    if paths.samples.exists() and plain == release.config:
        return read_npz(paths.samples)[0]
    number = plain.num_samples(plain.data.num_examples)
    return dataclasses.replace(release, config=plain).sample(number, seed=0)[0]


def _settings_of(manifest: Manifest, public: Any) -> Any:
    """The data section as it was when the data were prepared: a release hides paths."""
    asked = dataclasses.asdict(manifest.settings)
    fields = {
        f.name: asked[f.name] for f in dataclasses.fields(public) if f.name in asked
    }
    return dataclasses.replace(public, **fields)
