"""Whether a release folder holds what it should and nothing else."""

import binascii
import json
import pathlib
import re
import struct
from typing import Any

import flax
import jax
import numpy as np
import safetensors
import safetensors.numpy

from dpaf_jax.config import Config, from_public_dict, public_dict
from dpaf_jax.release.bundle import CONFIG, FILES, GENERATOR, PICTURE
from dpaf_jax.release.pictures import sample_grid
from dpaf_jax.release.samplers.registry import make_sampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.check import Check

PER_CLASS = 8  # pictures of each class in samples.png
VERSION = re.compile(r'\d+\.\d+\.\d+')
PNG_CHUNKS = {b'IHDR', b'IDAT', b'IEND'}  # no text, time, profile or EXIF


def read_json(path: pathlib.Path) -> Any:
    """Reads JSON that no two readers can understand differently.

    Raises:
        ValueError: it is not JSON, or has a name twice, NaN or an infinity.
        OSError: it cannot be read.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise ValueError(f'{path.name} has a name twice')
        return fields

    def refuse(constant: str) -> None:
        raise ValueError(f'{path.name} contains {constant}, which is not JSON')

    text = path.read_text(encoding='utf-8')
    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except RecursionError:
        raise ValueError(f'{path.name} is nested too deeply') from None


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal; 1 and 1.0 are, 1 and true are not."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and a == b


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


def check_config(path: pathlib.Path) -> tuple[Config | None, Check]:
    """Exactly the public fields, with values in their ranges and no path."""
    try:
        fields = read_json(path)
        if not isinstance(fields, dict):
            raise ValueError(f'{path.name} is not a JSON object')
        config = from_public_dict(fields)
    except (OSError, ValueError, UserError) as error:
        return None, Check(CONFIG, False, str(error))
    version = str(fields.get('version'))
    public = {**public_dict(config), 'version': version}
    if not (VERSION.fullmatch(version) and same(fields, public)):
        return config, Check(CONFIG, False, 'has a value that is not public')
    return config, Check(CONFIG, True, 'exactly the public fields')


def check_generator(path: pathlib.Path, config: Config) -> Check:
    """Exactly the generator's tensors, finite, and no metadata."""
    try:
        with safetensors.safe_open(path, 'numpy') as file:
            metadata = file.metadata()
        tensors = safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        return Check(GENERATOR, False, f'cannot be read: {error}')
    found = {name: (value.shape, value.dtype) for name, value in tensors.items()}
    try:
        expected = _generator_tensors(config)
    except UserError as error:
        return Check(GENERATOR, False, str(error))
    if metadata:
        return Check(GENERATOR, False, f'has metadata: {sorted(metadata)}')
    if found != expected:
        names = sorted(
            n for n in {*found, *expected} if found.get(n) != expected.get(n)
        )
        return Check(GENERATOR, False, f'does not fit {CONFIG}: {", ".join(names)}')
    if not all(np.isfinite(value).all() for value in tensors.values()):
        return Check(GENERATOR, False, 'has values that are not finite')
    count = sum(value.size for value in tensors.values())
    return Check(GENERATOR, True, f'{len(tensors)} tensors, {count} values, finite')


def _generator_tensors(config: Config) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    shapes = jax.eval_shape(make_sampler(config).init, jax.random.key(0))
    flat = flax.traverse_util.flatten_dict(shapes, sep='/')
    return {name: (leaf.shape, np.dtype(leaf.dtype)) for name, leaf in flat.items()}


def check_picture(path: pathlib.Path, config: Config) -> Check:
    """A whole PNG of the grid's size with pixels alone."""
    data = config.data
    none = np.zeros((0, *data.shape), np.uint8)
    expected = sample_grid(none, np.zeros(0), data.num_classes, PER_CLASS)
    try:
        size, kinds = _png(path.read_bytes())
    except (OSError, ValueError, struct.error) as error:
        return Check(PICTURE, False, f'is not a whole PNG: {error}')
    if extra := kinds - PNG_CHUNKS:
        return Check(PICTURE, False, f'has chunks beside pixels: {sorted(extra)}')
    if size != (expected.width, expected.height):
        return Check(
            PICTURE, False, f'is {size}, not {expected.width} x {expected.height}'
        )
    return Check(PICTURE, True, f'{size[0]} x {size[1]} pixels and no text')


def _png(content: bytes) -> tuple[tuple[int, int], set[bytes]]:
    """Size and kinds of chunks; ValueError where a byte is left over or wrong."""
    position, kinds = 8, set()
    if content[:8] != b'\x89PNG\r\n\x1a\n' or content[12:16] != b'IHDR':
        raise ValueError('it does not begin like one')
    while position < len(content):
        (length,) = struct.unpack_from('>I', content, position)
        body = content[position + 4 : position + 8 + length]
        (crc,) = struct.unpack_from('>I', content, position + 8 + length)
        if binascii.crc32(body) != crc:
            raise ValueError('a checksum is wrong')
        kinds.add(body[:4])
        position += 12 + length
        if body[:4] == b'IEND':
            break
    if b'IEND' not in kinds or position != len(content):
        raise ValueError('it does not end where it should')
    width, height = struct.unpack_from('>II', content, 16)
    return (width, height), kinds
