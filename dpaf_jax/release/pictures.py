"""Pictures of images: a grid with a row per class, as PNG.

Releases and reports get those of synthetic images alone; that of real ones is
`evaluation/printout.py`'s, for whoever may see the test images.
"""

import base64
import io
import os
import pathlib

import numpy as np
from PIL import Image

from dpaf_jax.runtime.files import write_bytes

GAP = 2  # pixels between tiles, see-through
TILE = 56  # pixels: small images are enlarged to about this size


def sample_grid(
    images: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    per_class: int = 8,
    scale: int | None = None,
) -> Image.Image:
    """Lays out the first images of each class, one row per class.

    The first ones as they come, not chosen ones: the picture is a fair sample.

    Args:
        images: [N, H, W, C] uint8, synthetic, or float32 in [0, 1]. C = 3 is colour; of
            any other number of channels the first is shown in grey.
        labels: [N] integers in [0, num_classes).
        num_classes: rows.
        per_class: columns; a place for which there is no image stays see-through.
        scale: by which each pixel is repeated, at least 1; default: to about 56 pixels
            a tile.

    Returns:
        RGBA picture; tile (row r, column k) has its upper left corner at
        x = k * (W * scale + 2), y = r * (H * scale + 2).

    Raises:
        ValueError: `images` are not uint8 [N, H, W, C], or `scale` is below 1.
    """
    if images.dtype == np.float32:  # rows of a table
        images = np.rint(255 * images).astype(np.uint8)
    if images.ndim != 4 or images.dtype != np.uint8:
        raise ValueError(
            f'images are {images.dtype} {images.shape}, not uint8 [N,H,W,C]'
        )
    height, width = images.shape[1:3]
    scale = _enlargement(height, width) if scale is None else scale
    if scale < 1:
        raise ValueError(f'scale is {scale}, below 1')
    step_y, step_x = height * scale + GAP, width * scale + GAP
    canvas = np.zeros(
        (num_classes * step_y - GAP, per_class * step_x - GAP, 4), np.uint8
    )
    for row in range(num_classes):
        chosen = np.flatnonzero(labels == row)[:per_class]
        for column, index in enumerate(chosen):
            tile = _enlarged(images[index], scale)
            y, x = row * step_y, column * step_x
            canvas[y : y + height * scale, x : x + width * scale, :3] = tile
            canvas[y : y + height * scale, x : x + width * scale, 3] = 255
    return Image.fromarray(canvas)


def tiles(
    canvas: np.ndarray, shape: tuple[int, int, int], num_classes: int, per_class: int
) -> np.ndarray:
    """The images of a grid: `sample_grid` backwards, for a grid with no place left free.

    Args:
        canvas: [Y, X, 4] uint8, of the size that `sample_grid` gives by default.
        shape: (H, W, C) of an image.
        num_classes: rows.
        per_class: columns.

    Returns:
        [num_classes * per_class, H, W, 3 or 1] uint8, row by row: what is shown of them.
    """
    height, width, channels = shape
    scale = _enlargement(height, width)
    step_y, step_x = height * scale + GAP, width * scale + GAP
    cells = np.pad(canvas, ((0, GAP), (0, GAP), (0, 0)))
    cells = cells.reshape(num_classes, step_y, per_class, step_x, 4)
    cells = cells[:, : height * scale : scale, :, : width * scale : scale]
    shown = cells[..., :3] if channels == 3 else cells[..., :1]
    return shown.swapaxes(1, 2).reshape(-1, height, width, shown.shape[-1])


def save_png(image: Image.Image, path: str | os.PathLike[str]) -> None:
    """Writes a PNG under a temporary name, then renames it: whole or not at all."""
    write_bytes(pathlib.Path(path), png_bytes(image))


def png_data_uri(image: Image.Image) -> str:
    """The picture as `data:image/png;base64,...`, for an HTML file of one piece."""
    return 'data:image/png;base64,' + base64.b64encode(png_bytes(image)).decode()


def _enlargement(height: int, width: int) -> int:
    return max(1, round(TILE / max(height, width)))


def _enlarged(image: np.ndarray, scale: int) -> np.ndarray:
    """[H, W, C] -> [H * scale, W * scale, 3 or 1]."""
    shown = image if image.shape[-1] == 3 else image[..., :1]
    return shown.repeat(scale, axis=0).repeat(scale, axis=1)


def picture(image: np.ndarray) -> Image.Image:
    """One image [H, W, C] uint8, C = 1 or 3, as a picture without a frame."""
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def png_bytes(image: Image.Image) -> bytes:
    """The picture as a PNG file: pixels alone, no text, time or profile."""
    buffer = io.BytesIO()
    image.save(buffer, format='PNG', optimize=True)
    return buffer.getvalue()
