"""A release as a folder: what may be handed to anybody. It cannot reach data or training code.

The folder has the generator's parameters, the public config, privacy.json, a model card and a
picture of samples. No discriminator, optimiser, key, path, count or real image.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

import flax
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from PIL import Image

from dpaf_jax.config import Config, check_public, from_public_dict, public_dict
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release import pictures
from dpaf_jax.release.card import model_card
from dpaf_jax.release.drawing import Release, balanced_labels
from dpaf_jax.release.samplers.dpaf import unbent
from dpaf_jax.release.samplers.registry import released_shapes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import write_bytes, write_text, written_whole

T = TypeVar('T')
GENERATOR, CONFIG = 'generator.safetensors', 'config.json'
RELEASE = 'release'  # its folder within a run's
PRIVACY, CARD, PICTURE = 'privacy.json', 'README.md', 'samples.png'
FILES = (GENERATOR, CONFIG, PRIVACY, CARD, PICTURE)
# Of privacy.json, what cards and headlines say.
STATED = {
    'guarantee', 'epsilon', 'epsilon_rdp', 'delta', 'overflow_delta', 'neighbors',
    'num_examples',
}  # fmt: skip


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
