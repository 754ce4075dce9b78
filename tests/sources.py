"""What the tests of sources share: pictures, configs, what was read or refused."""

import io
import pathlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from configs.default import get_config
from dpaf_jax import data
from dpaf_jax.config import DataConfig
from dpaf_jax.runtime.errors import UserError


def make_config(**changes: Any) -> DataConfig:
    return DataConfig(**(get_config().data.to_dict() | changes))


def pixels_of(seed: int, height: int = 8, width: int = 8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3), np.uint8)


def encode(pixels: np.ndarray, form: str = 'PNG') -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def write_picture(path: pathlib.Path, seed: int, height: int = 8, width: int = 8):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(pixels_of(seed, height, width)))


def prepared(config: DataConfig, tmp_path: pathlib.Path) -> data.Dataset:
    data.prepare(config, tmp_path / 'cache')
    return data.load(config, tmp_path / 'cache')


def refused(config: DataConfig, tmp_path: pathlib.Path, match: str) -> None:
    with pytest.raises(UserError, match=match):
        data.prepare(config, tmp_path / 'cache')
    assert not list(tmp_path.glob('cache*'))


def rows(images: np.ndarray) -> set[bytes]:
    return {image.tobytes() for image in images}
