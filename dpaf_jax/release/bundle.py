"""The release: what may be handed to anybody. It cannot reach data or training code.

A folder with the generator's parameters, the public config, privacy.json, a model card
and a picture of samples. No discriminator, optimiser, key, path, count or real image.
"""

import dataclasses
import functools
import hashlib
import json
import math
import operator
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import flax
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from PIL import Image

from dpaf_jax.config import Config, check_public, from_public_dict, public_dict
from dpaf_jax.networks.images import to_float, to_uint8
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release import pictures
from dpaf_jax.release.card import headline, model_card
from dpaf_jax.release.dealing import dealt
from dpaf_jax.release.relabel import by_label
from dpaf_jax.release.samplers.dpaf import truncated, unbent
from dpaf_jax.release.samplers.protocol import LabellingSampler, StoredImageSampler
from dpaf_jax.release.samplers.registry import PRIOR, make_sampler, released_shapes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import write_bytes, write_text, written_whole

T = TypeVar('T')
BATCH = 500  # images generated in one call
MOST_SEED = 2**32 - 1  # JAX takes higher ones for others
GENERATOR, CONFIG = 'generator.safetensors', 'config.json'
RELEASE = 'release'  # its folder within a run's
PRIVACY, CARD, PICTURE = 'privacy.json', 'README.md', 'samples.png'
FILES = (GENERATOR, CONFIG, PRIVACY, CARD, PICTURE)
# Of privacy.json, what cards and headlines say.
STATED = {
    'guarantee', 'epsilon', 'epsilon_rdp', 'delta', 'overflow_delta', 'neighbors',
    'num_examples',
}  # fmt: skip


@dataclasses.dataclass(frozen=True, repr=False)
class Release:
    """A trained generator with its public config and its privacy statement.

    Attributes:
        config: without any path of the owner's machine.
        privacy: the content of privacy.json.
        params: of the generator.
    """

    config: Config
    privacy: dict[str, Any]
    params: Any

    def __repr__(self) -> str:
        data = self.config.data
        records = 'x'.join(map(str, data.shape))
        return (
            f'<Release of {self.config.method}: {records}, {data.num_classes} classes, '
            f'{headline(self.privacy)}>'
        )

    @property
    def prior(self) -> tuple[float, ...]:
        """Class probabilities, [num_classes]; released with the generator, or the config's."""
        if PRIOR in self.params:
            return tuple(map(float, self.params[PRIOR]['classes']))
        return self.config.data.prior

    def generate(
        self, labels: np.ndarray, seed: int | None = None
    ) -> Iterator[np.ndarray]:
        """Images for the labels, in batches, in order.

        Args:
            labels: [n] int, from 0 to num_classes - 1.
            seed: of the latent draws; None takes one from the operating system. Samples
                are post-processing: their seed protects nothing.

        Returns:
            An iterator of [at most BATCH, H, W, C] uint8; of a table [.., 1, F, 1] float32,
            where 0 and 1 are the public bounds.

        Raises:
            UserError: a label that is no class, or a seed that is not from 0 to MOST_SEED.
        """
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        seed = _whole('seed', seed, 0, MOST_SEED)
        labels = _numbers(labels)
        _check_labels(labels, self.config.data.num_classes)
        return self._images(labels.astype(np.int32), seed)

    def _images(self, labels: np.ndarray, seed: int) -> Iterator[np.ndarray]:
        sampler, batch = make_sampler(self.config), _compiled(self.config)
        own = self._own
        if isinstance(sampler, StoredImageSampler):
            yield from dealt(sampler, own, labels, seed, BATCH)
            return

        def draw(number: int, meant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            key = jax.random.fold_in(jax.random.key(seed), number * BATCH)
            images, given = batch(own, key, meant)
            return np.asarray(images), np.asarray(given)

        if isinstance(sampler, LabellingSampler):
            meant = balanced_labels(BATCH, self.prior)
            yield from by_label(draw, labels, meant, self.config.data.num_classes)
            return
        for number, start in enumerate(range(0, len(labels), BATCH)):
            part = np.zeros(BATCH, np.int32)
            wanted = labels[start : start + BATCH]
            part[: len(wanted)] = wanted
            yield draw(number, part)[0][: len(wanted)]

    def sample(
        self, num: int, seed: int | None = None, prior: tuple[float, ...] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """A labelled synthetic data set in memory.

        Args:
            num: how many images.
            seed: see `generate`.
            prior: class probabilities; None takes the release's.

        Returns:
            ([num, H, W, C] as from `generate`, [num] int32).

        Raises:
            UserError: an argument is out of its range.
        """
        num = _whole('num', num, 1)
        classes = self.config.data.num_classes
        prior = self.prior if prior is None else prior
        shares = _numbers(prior)
        fits = shares.shape == (classes,) and shares.min() >= 0
        if not fits or not 0 < shares.sum() < math.inf:
            remedy = f'Give {classes} shares from 0, such as {self.prior}'
            raise UserError('prior', f'is {prior}', remedy)
        labels = balanced_labels(num, tuple(shares))
        return np.concatenate(list(self.generate(labels, seed))), labels

    def truncated(self, truncation: float) -> 'Release':
        """The same release with latent draws `truncation` times as wide, and images not bent.

        What it draws looks more like real images, is less various and teaches classifiers
        less: `release.truncated(0.85).sample(100)`.

        Args:
            truncation: above 0; at 1 the release stays as it is, bends included.

        Raises:
            UserError: no such number, or a release of another method than dpaf.
        """
        return dataclasses.replace(self, config=truncated(self.config, truncation))

    @property
    def has_labeller(self) -> bool:
        """Whether it holds a classifier that has learnt from the images."""
        return isinstance(make_sampler(self.config), LabellingSampler)

    def label(self, images: np.ndarray) -> np.ndarray:
        """The classes that the release's own labeller sees in any images.

        It has learnt from the private images within the release's guarantee.

        Args:
            images: [n, H, W, C] uint8, of the size and channels of the release.

        Returns:
            [n] int32.

        Raises:
            UserError: the release has no labeller, or images are of another shape.
        """
        if not self.has_labeller:
            raise UserError(
                'release',
                'has no labeller',
                'Of dpaf, train one with config.dpaf.classifier.private=labeller; other '
                'methods have none',
            )
        images, shape = np.asarray(images), self.config.data.shape
        if images.shape[1:] != shape or images.dtype != np.uint8:
            raise UserError(
                'images',
                f'are {images.dtype} of the shape {images.shape}',
                f'Give uint8 of the shape (n, {", ".join(map(str, shape))})',
            )
        given = []
        for start in range(0, len(images), BATCH):
            part = np.zeros((BATCH, *shape), np.uint8)
            wanted = images[start : start + BATCH]
            part[: len(wanted)] = wanted
            seen = _compiled_labels(self.config)(self._own, part)
            given.append(np.asarray(seen)[: len(wanted)])
        return np.concatenate([np.zeros(0, np.int32), *given])

    @property
    def _own(self) -> Any:
        """The sampler's parameters."""
        return {name: part for name, part in self.params.items() if name != PRIOR}


def _whole(name: str, value: Any, least: int, most: float = math.inf) -> int:
    """A whole number in a range, of NumPy's types, too."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        upwards = f'{least} up' if most == math.inf else f'{least} to {most}'
        raise UserError(name, f'is {value!r}', f'Give a whole number from {upwards}')
    return number


def _numbers(values: Any) -> np.ndarray:
    """An array of numbers; of no axis where they are none."""
    try:
        found = np.asarray(values)
    except ValueError:  # lists of several lengths
        return np.zeros(())
    return found if found.dtype.kind in 'biuf' else np.zeros(())


def _check_labels(labels: np.ndarray, num_classes: int) -> None:
    if labels.ndim != 1:
        raise UserError(
            'labels', f'has the shape {labels.shape}', 'Give a list of them'
        )
    wrong = [x for x in np.unique(labels).tolist() if x not in range(num_classes)]
    if wrong:
        remedy = f'Give whole numbers from 0 to {num_classes - 1}'
        raise UserError('labels', f'has {wrong[0]!r}, which is no class', remedy)


@functools.lru_cache(maxsize=4)
def _compiled(config: Config) -> Callable[..., Any]:
    """A batch of the sampler's images, with labels; one program for all draws of a config."""
    sampler = make_sampler(config)

    @jax.jit
    def batch(params: Any, key: jax.Array, meant: jax.Array) -> Any:
        made = sampler.sample(params, key, meant)
        if config.data.columns:
            return (made + 1) / 2, meant
        images = to_uint8(made)
        if isinstance(sampler, LabellingSampler):
            return images, sampler.label(params, to_float(images))
        return images, meant

    return batch


@functools.lru_cache(maxsize=4)
def _compiled_labels(config: Config) -> Callable[..., Any]:
    """The labels that a sampler gives a batch of uint8 images."""
    sampler = make_sampler(config)
    assert isinstance(sampler, LabellingSampler)
    return jax.jit(lambda params, images: sampler.label(params, to_float(images)))


def balanced_labels(num: int, prior: tuple[float, ...]) -> np.ndarray:
    """[num] int32 labels whose counts follow `prior` as closely as whole numbers can.

    Classes are interleaved, so that any stretch of the data set is about balanced.

    Args:
        num: how many labels.
        prior: a share for each class, not negative; they need not sum to 1.

    Example:
        >>> balanced_labels(6, (0.5, 0.25, 0.25))
        array([0, 1, 0, 2, 1, 0], dtype=int32)
    """
    shares = np.asarray(prior) / np.sum(prior)
    counts = np.floor(shares * num).astype(int)
    # The largest remainders get what rounding down has left.
    order = np.argsort(counts - shares * num, kind='stable')
    counts[order[: num - counts.sum()]] += 1
    position = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in counts])
    labels = np.repeat(np.arange(len(counts)), counts)
    return labels[np.argsort(position, kind='stable')].astype(np.int32)


def write_release(
    directory: pathlib.Path, config: Config, plan: PrivacyPlan, params: Any
) -> Release:
    """Writes the folder whole: under a temporary name first, then renamed.

    config.json states the N of the plan, also where the run took it from its data:
    whoever checks the release needs it to rebuild the plan.
    """
    fields = public_dict(config.with_num_examples(plan.num_examples))
    release = Release(from_public_dict(fields), plan.to_json(), params)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(params)):
        raise FloatingPointError(
            'the generator has diverged: its weights are not finite. Lower its learning '
            'rate, in a new workdir, which spends epsilon anew'
        )
    flat = flax.traverse_util.flatten_dict(params, sep='/')
    host = {name: np.ascontiguousarray(value) for name, value in flat.items()}
    grid = _shown(release)
    with written_whole(directory) as staging:
        staging.mkdir()
        # Not save_file: it makes the file unreadable for everybody else.
        write_bytes(staging / GENERATOR, safetensors.numpy.save(host))
        write_text(staging / CONFIG, canonical_json(fields))
        write_text(staging / PRIVACY, canonical_json(release.privacy))
        pictures.save_png(grid, staging / PICTURE)
        write_text(staging / CARD, model_card(release.config, release.privacy))
    return release


def _shown(release: Release) -> Image.Image:
    """Eight samples of each class, as the release draws them, but for bends."""
    num_classes = release.config.data.num_classes
    labels = balanced_labels(8 * num_classes, (1,) * num_classes)
    unlike = dataclasses.replace(release, config=unbent(release.config))
    images = np.concatenate(list(unlike.generate(labels)))
    return pictures.sample_grid(images, labels, num_classes)


def mended(directory: pathlib.Path) -> tuple[str, ...]:
    """Writes card and picture of a release anew where they are gone; names those.

    Both follow from the rest. A card written here states no accuracies.
    """
    release = load_release(directory)
    gone = tuple(n for n in (CARD, PICTURE) if not (directory / n).is_file())
    if CARD in gone:
        write_text(directory / CARD, model_card(release.config, release.privacy))
    if PICTURE in gone:
        pictures.save_png(_shown(release), directory / PICTURE)
    return gone


def has_all_files(directory: pathlib.Path) -> bool:
    """Whether a folder has every file that a release consists of."""
    return all((directory / name).is_file() for name in FILES)


def canonical_json(fields: Any) -> str:
    """The one text of a JSON file of a release: `verify` accepts no other."""
    return json.dumps(fields, indent=2, allow_nan=False) + '\n'


def checksum(directory: pathlib.Path) -> str:
    """SHA-256 of a release's files and their names: of which state something was said."""
    files = sorted(path for path in directory.iterdir() if path.is_file())
    parts = [
        path.name.encode() + hashlib.sha256(path.read_bytes()).digest()
        for path in files
    ]
    return hashlib.sha256(b''.join(parts)).hexdigest()


def generator_checksum(directory: pathlib.Path) -> str:
    """SHA-256 of a release's weights: they stay when card and config are written anew."""
    return hashlib.sha256((directory / GENERATOR).read_bytes()).hexdigest()


def load_release(directory: str | os.PathLike[str]) -> Release:
    """Reads a release folder: neither data nor training code are needed.

    Args:
        directory: with generator.safetensors, config.json and privacy.json.

    Returns:
        The release; `python -m dpaf_jax.verify` recomputes what it states.

    Raises:
        UserError: a file is missing, damaged, or does not fit the others.

    Example:
        >>> load_release('runs/nowhere')
        Traceback (most recent call last):
        dpaf_jax.runtime.errors.UserError: runs/nowhere/generator.safetensors: is missing...
    """
    directory = pathlib.Path(directory)
    for name in (GENERATOR, CONFIG, PRIVACY):
        if not (directory / name).is_file():
            inner = directory / RELEASE
            remedy = 'Give the folder of a whole release'
            if (inner / name).is_file():
                remedy = f"{directory} is a run's folder: give {inner}"
            raise UserError(str(directory / name), 'is missing', remedy)
    config = from_public_dict(_read(directory / CONFIG, _read_object))
    check_public(config)
    privacy = _read(directory / PRIVACY, _read_object)
    if missing := sorted(STATED - privacy.keys()):
        problem = f'is damaged (it states no {missing[0]})'
        raise UserError(str(directory / PRIVACY), problem, 'Copy the release again')
    flat = _read(directory / GENERATOR, safetensors.numpy.load_file)
    params = flax.traverse_util.unflatten_dict(flat, sep='/')
    _check_shapes(directory, config, params)
    return Release(config, privacy, params)


def _read(path: pathlib.Path, reader: Callable[[pathlib.Path], T]) -> T:
    try:
        return reader(path)
    except (ValueError, safetensors.SafetensorError) as error:
        problem = f'is damaged ({str(error).splitlines()[0][:100]})'
        raise UserError(str(path), problem, 'Copy the release again') from error


def _read_object(path: pathlib.Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding='utf-8'))
    if not isinstance(content, dict):
        raise ValueError('not a JSON object')
    return content


def _check_shapes(directory: pathlib.Path, config: Config, params: Any) -> None:
    expected = released_shapes(config)
    if jax.tree.map(jnp.shape, params) != jax.tree.map(jnp.shape, expected):
        raise UserError(
            str(directory / GENERATOR),
            f'does not fit {CONFIG} beside it',
            'Copy the release again; both files belong together',
        )
