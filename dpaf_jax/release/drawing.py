"""Drawing from a release: a generator with its public config, and nothing of the data.

`bundle.py` writes and reads the folder that holds one.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.networks.images import to_float, to_uint8
from dpaf_jax.release.card import headline
from dpaf_jax.release.dealing import dealt
from dpaf_jax.release.relabel import by_label
from dpaf_jax.release.samplers.dpaf import truncated
from dpaf_jax.release.samplers.protocol import LabellingSampler, StoredImageSampler
from dpaf_jax.release.samplers.registry import PRIOR, make_sampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import ProgressFn

BATCH = 500  # images generated in one call
MOST_SEED = 2**32 - 1  # JAX takes higher ones for others


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
        self,
        labels: np.ndarray,
        seed: int | None = None,
        on_progress: ProgressFn = lambda num: None,
    ) -> Iterator[np.ndarray]:
        """Images for the labels, in batches, in order.

        Args:
            labels: [n] int, from 0 to num_classes - 1.
            seed: of the latent draws; None takes one from the operating system. Samples
                are post-processing: their seed protects nothing.
            on_progress: given how many are drawn.

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
        return _told(self._images(labels.astype(np.int32), seed), on_progress)

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
        self,
        num: int,
        seed: int | None = None,
        prior: tuple[float, ...] | None = None,
        on_progress: ProgressFn = lambda num: None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """A labelled synthetic data set in memory.

        Args:
            num: how many images.
            seed: see `generate`.
            prior: class probabilities; None takes the release's.
            on_progress: see `generate`.

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
        images = list(self.generate(labels, seed, on_progress))
        return np.concatenate(images), labels

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


def _told(
    batches: Iterator[np.ndarray], on_progress: ProgressFn
) -> Iterator[np.ndarray]:
    done = 0
    for batch in batches:
        done += len(batch)
        on_progress(done)
        yield batch


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
