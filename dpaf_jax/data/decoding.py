"""All images of a source as pixels, in order, several at a time."""

import collections
import concurrent.futures
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from absl import logging

from dpaf_jax.config import DataConfig
from dpaf_jax.data.pictures import BadPictureError, to_pixels
from dpaf_jax.data.source import Content, Source, reading
from dpaf_jax.errors import UserError

T = TypeVar('T')

_LOOK_AHEAD = 64  # pictures in memory at once: bounds RAM, keeps the threads busy


def decoded(source: Source, config: DataConfig) -> Iterator[np.ndarray]:
    """Yields the image of every record that has one, in their order.

    Args:
        source: whose contents are read once, from first to last.
        config: gives the size and the number of channels.

    Yields:
        [image_size, image_size, channels] uint8.

    Raises:
        UserError: naming the first record that cannot be read or decoded, or whose
            size differs where the source says that sizes must agree.
    """
    decode = functools.partial(
        to_pixels, image_size=config.image_size, channels=config.channels
    )
    results = _in_threads(decode, _read(source))
    first, first_size = -1, None
    for i in np.flatnonzero(source.is_present).tolist():
        try:
            pixels, size = next(results)
        except BadPictureError as error:
            remedy = 'Replace it with a whole 8-bit picture, or remove it'
            problem = f'{source.record_id(i)} {error}'
            raise UserError(source.where, problem, remedy) from error
        if first_size is None:
            first, first_size = i, size
        if source.same_size and size != first_size:
            raise _mixed_sizes(source, i, size, first, first_size)
        if i and i % 1000 == 0:
            # A share, not a count: counts after filtering are private.
            share = 100 * i // len(source.labels)
            logging.log_every_n_seconds(logging.INFO, 'Decoded %d %%', 30, share)
        yield pixels


def _read(source: Source) -> Iterator[Content]:
    contents = source.contents()
    while True:
        with reading(source.where):
            try:
                content = next(contents)
            except StopIteration:
                return
        yield content


def _in_threads(fn: Callable[[Content], T], contents: Iterator[Content]) -> Iterator[T]:
    # Pillow decodes without the interpreter lock; arrays are not worth a thread.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pending: collections.deque[Callable[[], T]] = collections.deque()
        for content in contents:
            if isinstance(content, bytes):
                pending.append(pool.submit(fn, content).result)
            else:
                pending.append(functools.partial(fn, content))
            if len(pending) == _LOOK_AHEAD:
                yield pending.popleft()()
        while pending:
            yield pending.popleft()()


def _mixed_sizes(
    source: Source,
    i: int,
    size: tuple[int, int],
    first: int,
    first_size: tuple[int, int],
) -> UserError:
    return UserError(
        source.where,
        f'{source.record_id(i)} is {size[0]} x {size[1]} (height x width), but '
        f'{source.record_id(first)} is {first_size[0]} x {first_size[1]}',
        'Bring all pictures to one size first',
    )
