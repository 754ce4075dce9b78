"""Pictures of gradient inversion: how the fits went, and what was recovered."""

from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dpaf_jax.attack.plots import figure, rendered

RANGE = 1e4  # the colours end at success over this and at success times this
TILE, SHOWN, GAP = 64, 8, 16


def heat_maps(fitted: Mapping[str, np.ndarray], success: float) -> Image.Image:
    """One map for each strategy: attempts to the right, iterations of training down.

    Args:
        fitted: by strategy, [iterations, attempts] above 0.
        success: the fitted gradient at which the colour is white.
    """
    from matplotlib.colors import LogNorm  # late: it is slow to import

    page = figure(
        'Gradient inversion: NOT PRIVATE\n'
        f'blue: fitted gradient below {success:g}, which is success; red: above',
        width=12,
        height=3.6,
    )
    panels = page.subplots(1, len(fitted), sharey=True, squeeze=False)[0]
    low, high = success / RANGE, success * RANGE
    for panel, (name, values) in zip(panels, fitted.items(), strict=True):
        shown = np.clip(np.nan_to_num(values, nan=high), low, high)
        image = panel.imshow(shown, 'RdBu_r', LogNorm(low, high), aspect='auto')
        panel.set_title(name, fontsize=10)
        panel.set(xlabel='attempt', ylabel='iteration of training')
        panel.label_outer()
    page.colorbar(image, ax=panels, label='fitted gradient')
    return rendered(page)


def recovered_images(rows: Mapping[str, np.ndarray]) -> Image.Image:
    """Images of some iterations, evenly spread, a row for each name.

    Args:
        rows: [n, H, W, C] uint8 by name.
    """
    font, left, ink = ImageFont.load_default(13), 190, '#222222'
    page = Image.new(
        'RGB', (left + SHOWN * (TILE + 4), len(rows) * (TILE + 4) + GAP), 'white'
    )
    draw = ImageDraw.Draw(page)
    for y, (name, images) in enumerate(rows.items()):
        top = GAP // 2 + y * (TILE + 4)
        draw.text((GAP // 2, top + TILE // 2 - 8), name, ink, font)
        for x, i in enumerate(np.linspace(0, len(images) - 1, SHOWN).astype(int)):
            image = images[i] if images.shape[-1] == 3 else images[i][..., 0]
            tile = Image.fromarray(image).convert('RGB')
            page.paste(
                tile.resize((TILE, TILE), Image.Resampling.NEAREST),
                (left + x * (TILE + 4), top),
            )
    return page
