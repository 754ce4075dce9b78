"""Pictures of gradient inversion: how the fits went, and what was recovered."""

from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT, GAP = 300, 220, 16  # of a heat map; between things
LEAST, MOST = 1e-4, 1e4  # fitted gradients at the ends of the colours
TILE, SHOWN = 64, 8
INK = '#222222'
# From what is fitted, dark, past what counts as success, to what is not, bright.
COLOURS = np.array(
    [[26, 32, 88], [47, 111, 222], [250, 250, 250], [222, 140, 47], [150, 20, 20]]
)


def heat_maps(fitted: Mapping[str, np.ndarray], success: float) -> Image.Image:
    """One map for each strategy: attempts to the right, iterations of training down.

    Args:
        fitted: by strategy, [iterations, attempts] above 0.
        success: the fitted gradient at which the colour is white.
    """
    font = ImageFont.load_default(13)
    page = Image.new('RGB', (GAP + len(fitted) * (WIDTH + GAP), HEIGHT + 80), 'white')
    draw = ImageDraw.Draw(page)
    for i, (name, values) in enumerate(fitted.items()):
        x = GAP + i * (WIDTH + GAP)
        tile = Image.fromarray(_coloured(values, success))
        page.paste(tile.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR), (x, 30))
        draw.text((x, 8), name, INK, font)
    text = (
        'right: attempts   down: iterations of training   '
        f'blue: fitted gradient below {success:g}   red: above'
    )
    draw.text((GAP, HEIGHT + 48), text, INK, font)
    return page


def _coloured(values: np.ndarray, success: float) -> np.ndarray:
    with np.errstate(divide='ignore', invalid='ignore'):
        logs = np.nan_to_num(np.log10(values / success), nan=4, posinf=4, neginf=-4)
    place = np.interp(logs, [np.log10(LEAST), 0, np.log10(MOST)], [0, 0.5, 1])
    ends = np.linspace(0, 1, len(COLOURS))
    channels = [np.interp(place, ends, COLOURS[:, c]) for c in range(3)]
    return np.stack(channels, axis=-1).astype(np.uint8)


def recovered_images(rows: Mapping[str, np.ndarray]) -> Image.Image:
    """Images of some iterations, evenly spread, a row for each name.

    Args:
        rows: [n, H, W, C] uint8 by name.
    """
    font, left = ImageFont.load_default(13), 190
    page = Image.new(
        'RGB', (left + SHOWN * (TILE + 4), len(rows) * (TILE + 4) + GAP), 'white'
    )
    draw = ImageDraw.Draw(page)
    for y, (name, images) in enumerate(rows.items()):
        top = GAP // 2 + y * (TILE + 4)
        draw.text((GAP // 2, top + TILE // 2 - 8), name, INK, font)
        for x, i in enumerate(np.linspace(0, len(images) - 1, SHOWN).astype(int)):
            image = images[i] if images.shape[-1] == 3 else images[i][..., 0]
            tile = Image.fromarray(image).convert('RGB')
            page.paste(
                tile.resize((TILE, TILE), Image.Resampling.NEAREST),
                (left + x * (TILE + 4), top),
            )
    return page
