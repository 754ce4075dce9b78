"""Whether a release folder holds what it should and nothing else."""

import binascii
import io
import json
import pathlib
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import flax
import numpy as np
import safetensors
import safetensors.numpy
from PIL import Image

from dpaf_jax.config import (
    PUBLIC_SOURCE,
    Config,
    DataConfig,
    check_public,
    completed,
    from_public_dict,
    public_dict,
)
from dpaf_jax.release.bundle import CONFIG, FILES, GENERATOR, PICTURE, canonical_json
from dpaf_jax.release.pictures import png_bytes, sample_grid, tiles
from dpaf_jax.release.samplers.registry import PRIOR, released_shapes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.check import Check

PER_CLASS = 8  # pictures of each class in samples.png
VERSION = re.compile(r'\d+\.\d+\.\d+')
PNG_CHUNKS = {b'IHDR', b'IDAT', b'IEND'}  # no text, time, profile or EXIF
MAX_GROWTH = 1.05  # zlib and zlib-ng differ by up to 2.5 % on grids of samples


def read_json(path: pathlib.Path) -> Any:
    """Reads JSON that no two readers can understand differently, and nothing beside it.

    Raises:
        ValueError: it is not JSON, has a name twice, NaN or an infinity, or another byte
            than the package writes for what it says: a space, a digit, an escape.
        OSError: it cannot be read.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise ValueError(f'{path.name} has a name twice')
        return fields

    def refuse(constant: str) -> None:
        raise ValueError(f'{path.name} contains {constant}, which is not JSON')

    text = path.read_bytes().decode()
    try:
        content = json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except RecursionError:
        raise ValueError(f'{path.name} is nested too deeply') from None
    if text != canonical_json(content):
        raise ValueError(f'{path.name} has bytes beside what it says')
    return content


def told(error: Exception) -> str:
    """What is wrong with a file that cannot be read; the check has its name."""
    if isinstance(error, FileNotFoundError):
        return 'is missing'
    if isinstance(error, OSError) and error.strerror:
        return f'cannot be read: {error.strerror}'
    return str(error)


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are written alike: 1 is neither 1.0 nor true."""
    return json.dumps(a) == json.dumps(b)


def check_files(directory: pathlib.Path) -> Check:
    """Exactly the files of a release; no folder, no link."""
    found = {path.name: path for path in directory.iterdir()}
    wrong = [f'{name} is missing' for name in FILES if name not in found]
    wrong += [f'{name} does not belong' for name in found if name not in FILES]
    wrong += [
        f'{name} is not a plain file'
        for name, path in found.items()
        if path.is_symlink() or not path.is_file()
    ]
    return Check(
        'files', not wrong, '; '.join(sorted(wrong)) or 'the five of a release'
    )


def has_no_end(directory: pathlib.Path) -> bool:
    """Whether something stands for a file that reading may never finish: a pipe, a device."""
    return any(
        path.exists() and not path.is_file() and not path.is_dir()
        for path in (directory / name for name in FILES)
    )


def check_config(path: pathlib.Path) -> tuple[Config | None, Check]:
    """Exactly the public fields, with values in their ranges and no path."""
    try:
        fields = read_json(path)
        if not isinstance(fields, dict):
            raise ValueError(f'{path.name} is not a JSON object')
        config = from_public_dict(fields)
        check_public(config)
    except (OSError, ValueError, UserError) as error:
        return None, Check(CONFIG, False, told(error))
    version = str(fields.get('version'))
    public = {**public_dict(config), 'version': version}
    start = config.warm_start
    if not (
        VERSION.fullmatch(version)
        and re.fullmatch(PUBLIC_SOURCE, config.data.source)
        and (not start or re.fullmatch(PUBLIC_SOURCE, start))
        # As they would be written now, but for fields that came later.
        and same(fields, _those_of(public, fields))
        and completed(fields) == public
    ):
        return config, Check(CONFIG, False, 'has a value that is not public')
    return config, Check(CONFIG, True, 'exactly the public fields')


def _those_of(fields: Any, named: Any) -> Any:
    """The fields that `named` has, too, at every depth."""
    if not isinstance(fields, dict) or not isinstance(named, dict):
        return fields
    return {
        name: _those_of(fields[name], named[name]) for name in fields if name in named
    }


def check_generator(path: pathlib.Path, config: Config) -> Check:
    """Exactly the generator's tensors, finite, and not a byte beside them."""
    try:
        content = path.read_bytes()
        tensors = safetensors.numpy.load(content)
    except OSError as error:
        return Check(GENERATOR, False, told(error))
    except safetensors.SafetensorError as error:
        return Check(GENERATOR, False, f'cannot be read: {error}')
    except KeyError as error:  # a type that NumPy has not
        return Check(GENERATOR, False, f'does not fit {CONFIG}: has {error}')
    found = {name: (value.shape, value.dtype) for name, value in tensors.items()}
    try:
        expected = _generator_tensors(config)
    except UserError as error:
        return Check(GENERATOR, False, str(error))
    if found != expected:
        names = sorted(
            n for n in {*found, *expected} if found.get(n) != expected.get(n)
        )
        return Check(GENERATOR, False, f'does not fit {CONFIG}: {", ".join(names)}')
    if not all(np.isfinite(value).all() for value in tensors.values()):
        return Check(GENERATOR, False, 'has values that are not finite')
    shares = tensors.get(f'{PRIOR}/classes')
    if shares is not None and (min(shares) <= 0 or abs(sum(shares) - 1) > 1e-5):
        return Check(GENERATOR, False, f'has shares of classes that are none: {shares}')
    # Metadata, spaces, escapes, another order: the writer has one text for a header.
    if safetensors.numpy.save(tensors) != content:
        return Check(GENERATOR, False, 'has a header of more than names and shapes')
    count = sum(value.size for value in tensors.values())
    return Check(GENERATOR, True, f'{len(tensors)} tensors, {count} values, finite')


def _generator_tensors(config: Config) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    flat = flax.traverse_util.flatten_dict(released_shapes(config), sep='/')
    return {name: (leaf.shape, np.dtype(leaf.dtype)) for name, leaf in flat.items()}


def check_picture(path: pathlib.Path, config: Config) -> list[Check]:
    """A PNG of the grid of samples with its pixels alone, none of them out of sight.

    The same pixels may be compressed differently by another version of Pillow or zlib:
    that is remarked, and rejected where it takes more room than versions differ by.
    """
    try:
        content = path.read_bytes()
        written = png_bytes(_grid(content, config.data))
    except (OSError, SyntaxError, ValueError, struct.error, zlib.error) as error:
        return [Check(PICTURE, False, told(error))]
    if len(content) > MAX_GROWTH * len(written):
        detail = f'takes {len(content)} bytes where {len(written)} hold its pixels'
        return [Check(PICTURE, False, detail)]
    checks = [Check(PICTURE, True, 'the grid of samples and nothing beside its pixels')]
    if content != written:
        detail = 'not compressed as here: by another version, or by another program'
        checks.append(Check(PICTURE, None, detail))
    return checks


def _grid(content: bytes, data: DataConfig) -> Image.Image:
    """The picture as `sample_grid` makes it; ValueError for anything else in `content`."""
    labels = np.repeat(np.arange(data.num_classes), PER_CLASS)
    blank = np.zeros((len(labels), *data.shape[:2], 1), np.uint8)
    size = sample_grid(blank, labels, data.num_classes, PER_CLASS).size
    _check_png(content, *size)
    canvas = np.asarray(Image.open(io.BytesIO(content), formats=['PNG']))
    images = tiles(canvas, data.shape, data.num_classes, PER_CLASS)
    grid = sample_grid(images, labels, data.num_classes, PER_CLASS)
    if not np.array_equal(canvas, np.asarray(grid)):
        raise ValueError('has pixels that no grid of samples has')
    return grid


def _check_png(content: bytes, width: int, height: int) -> None:
    """Exactly a header, compressed RGBA pixels and an empty end, as Pillow writes them."""
    chunks = list(_chunks(content))
    kinds, bodies = tuple(kind for kind, _ in chunks), [body for _, body in chunks]
    header = struct.pack('>IIBBBBB', width, height, 8, 6, 0, 0, 0)
    if kinds != (b'IHDR', *[b'IDAT'] * (len(kinds) - 2), b'IEND'):
        extra = sorted({*kinds} - PNG_CHUNKS) or 'some in a wrong place'
        raise ValueError(f'has chunks beside pixels: {extra}')
    if bodies[0] != header or bodies[-1]:
        raise ValueError(f'is not a PNG of {width} x {height} RGBA pixels alone')
    stream, length = zlib.decompressobj(), height * (1 + 4 * width)
    pixels = stream.decompress(b''.join(bodies[1:-1]), length + 1)
    if len(pixels) != length or not stream.eof or stream.unused_data:
        raise ValueError('has more or less than its pixels in it')


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of each; ValueError where a byte is left over or wrong."""
    if content[:8] != b'\x89PNG\r\n\x1a\n':
        raise ValueError('does not begin like a PNG')
    position = 8
    while position < len(content):
        (length,) = struct.unpack_from('>I', content, position)
        body = content[position + 4 : position + 8 + length]
        (crc,) = struct.unpack_from('>I', content, position + 8 + length)
        if binascii.crc32(body) != crc:
            raise ValueError('a checksum is wrong')
        yield body[:4], body[4:]
        position += 12 + length
