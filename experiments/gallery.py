"""What releases make, side by side: the picture at the top of README.md.

    python -m experiments.gallery --out=docs/samples.png \
        --releases=runs/mnist/release,runs/fashion/release --captions=MNIST,Fashion-MNIST

Draws from each release alone. A panel has a column per class, or several where there are
few; images are the first that come, not chosen ones. Below stand the caption and what the
release's own privacy.json certifies.
"""

import math
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from dpaf_jax.runtime.command import fail, parse, prepare_jax, start

SIDE, GAP, MARGIN = 480, 2, 24  # of a panel, between images, around panels; pixels
CAPTION, STATEMENT = 26, 20  # heights of letters, pixels
FONT = font_manager.findfont('DejaVu Sans')  # has × and ε, as Pillow's own has not
ROWS = 8  # at least; as many columns

_OUT = flags.DEFINE_string(
    'out',
    None,
    'A PNG file; of photographs a JPEG file is smaller.',
    allow_override=True,
)
_RELEASES = flags.DEFINE_list('releases', [], 'Release folders.')
_CAPTIONS = flags.DEFINE_list('captions', [], 'One for each release.')
_TRUNCATION = flags.DEFINE_float(
    'truncation', 1.0, 'As that of dpaf_jax.sample.', 0.1, 1.0, allow_override=True
)
_SEED = flags.DEFINE_integer('seed', 0, 'Of the latent draws.', allow_override=True)


def columns(num_classes: int) -> np.ndarray:
    """The class of each column: each the same number of times, neighbours alike."""
    return np.repeat(np.arange(num_classes), math.ceil(ROWS / num_classes))


def panel(images: np.ndarray, side: int = SIDE) -> Image.Image:
    """Lays out [n * n, H, W, C] uint8 images row by row in a square."""
    number = math.isqrt(len(images))
    edges = np.rint(np.linspace(0, side + GAP, number + 1)).astype(int)
    canvas = Image.new('RGB', (side, side), 'white')
    for place, image in enumerate(images):
        row, column = divmod(place, number)
        x, y = edges[column], edges[row]
        size = edges[column + 1] - x - GAP, edges[row + 1] - y - GAP
        tile = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
        canvas.paste(tile.resize(size, Image.Resampling.BICUBIC), (int(x), int(y)))
    return canvas


def side_by_side(panels: Sequence[tuple[Image.Image, str, str]]) -> Image.Image:
    """Panels with a caption and a statement below each, on white."""
    step = SIDE + MARGIN
    below = MARGIN // 2 + CAPTION + STATEMENT + MARGIN
    size = MARGIN + len(panels) * step, MARGIN + SIDE + below
    canvas = Image.new('RGB', size, 'white')
    draw = ImageDraw.Draw(canvas)
    for place, (shown, caption, statement) in enumerate(panels):
        x, y = MARGIN + place * step, MARGIN
        canvas.paste(shown, (x, y))
        y += SIDE + MARGIN // 2
        middle = x + SIDE // 2
        for text, height, colour in (
            (caption, CAPTION, 'black'),
            (statement, STATEMENT, '#555555'),
        ):
            font = ImageFont.truetype(FONT, height)
            draw.text((middle, y), text, fill=colour, font=font, anchor='ma')
            y += height + 4
    return canvas


def shown(
    folder: pathlib.Path, seed: int, truncation: float = 1.0
) -> tuple[Image.Image, str]:
    """A panel of a release, and what its privacy.json certifies."""
    from dpaf_jax import load_release

    release = load_release(folder).truncated(truncation)
    classes = columns(release.config.data.num_classes)
    labels = np.tile(classes, len(classes)).astype(np.int32)
    images = np.concatenate(list(release.generate(labels, seed)))
    statement = f'certified ε = {release.config.privacy.epsilon:g}'
    if release.privacy['guarantee'] != 'certified':
        statement = 'no epsilon certified'
    return panel(images), statement


def main(argv: Sequence[str]) -> None:
    """The command."""
    if not _OUT.value or not _RELEASES.value:
        fail('give --releases, --captions and --out; see --help')
    if len(_CAPTIONS.value) != len(_RELEASES.value):
        fail('--captions needs one for each of --releases')
    prepare_jax()
    panels = []
    for folder, caption in zip(_RELEASES.value, _CAPTIONS.value, strict=True):
        place = pathlib.Path(folder)
        picture, statement = shown(place, _SEED.value, _TRUNCATION.value)
        panels.append((picture, caption, statement))
    side_by_side(panels).save(_OUT.value, optimize=True, quality=92)


if __name__ == '__main__':
    start(main, parse)
