"""All images of a source as pixels, in order, several at a time."""

import collections
import concurrent.futures
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import logging

from dpaf_jax.config import DataConfig
from dpaf_jax.data.pixels import BadPictureError, to_pixels
from dpaf_jax.data.sources.base import Content, Source, reading
from dpaf_jax.runtime.errors import UserError

T = TypeVar('T')

MOST_NAMED = 10  # bad pictures in one message
PATIENCE = 30.0  # seconds between two lines about what is decoded
_LOOK_AHEAD = 64  # pictures in memory at once: bounds RAM, keeps the threads busy


def decoded(source: Source, config: DataConfig) -> Iterator[np.ndarray]:
    """Yields the image of every record that has one, in their order.

    Args:
        source: whose contents are read once, from first to last.
        config: gives size, channels, fit and window.

    Yields:
        [image_size, image_size, channels] uint8.

    Raises:
        UserError: naming the record that cannot be read; or up to ten that cannot be
            decoded, so that they can be mended in one go.
    """
    decode = functools.partial(
        _attempt,
        image_size=config.image_size,
        channels=config.channels,
        fit=config.fit,
        window=config.grey_levels,
    )
    results = _in_threads(decode, _read(source))
    bad: list[str] = []
    begun = told = time.monotonic()
    for i, is_present in enumerate(source.is_present.tolist()):
        if i % 1000 == 0 and time.monotonic() - told > PATIENCE:
            told = time.monotonic()
            # Of all records, also those that a filter has emptied: which it has is private.
            logging.info('Decoded %d %%', 100 * i // len(source.labels))
        if not is_present:
            continue
        result = next(results)
        if isinstance(result, BadPictureError):
            bad.append(f'{source.record_id(i)} {result}')
            if len(bad) == MOST_NAMED:
                break
            continue
        yield result
    if bad:
        raise bad_pictures(source.where, bad)
    if time.monotonic() - begun > PATIENCE:
        logging.info('Decoded all pictures')


def _attempt(content: Content, **how: Any) -> np.ndarray | BadPictureError:
    # Returned, for a generator that raises has ended: the rest could not be looked at.
    try:
        return to_pixels(content, **how)
    except BadPictureError as error:
        return error


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


def bad_pictures(where: str, bad: Sequence[str]) -> UserError:
    """The refusal of pictures that cannot be decoded.

    Args:
        where: what messages call the source.
        bad: of each its name and what is wrong with it; ten are told.
    """
    others = ['perhaps others'] if len(bad) >= MOST_NAMED else []
    it = 'it' if len(bad) == 1 else 'each'
    remedy = f'Replace {it} with a whole 8-bit picture, or remove it'
    if any('window' in text for text in bad):
        remedy += ', or state config.data.window'
    return UserError(where, '; '.join([*bad[:MOST_NAMED], *others]), remedy)
