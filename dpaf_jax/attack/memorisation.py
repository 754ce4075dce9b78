"""Memorisation: are synthetic images nearer to training images than to held-out ones?

A generator that copies makes images that are much nearer to the training set. One that has
learnt the distribution is as near to training images as to held-out ones of the same
number, so half of its images are nearer to either. Rows of a table likewise: they are near
in units of their columns' public bounds.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import stats

from dpaf_jax.attack.distances import Nearest, nearest
from dpaf_jax.attack.target import WARNING, Target
from dpaf_jax.runtime.errors import UserError

MOST = (
    10000  # synthetic images looked at, and real ones on either side of the comparison
)
PAIRS = 24  # shown
ACROSS = 8  # pairs in a row of the picture
TILE, GAP = 64, 6
RED, INK = '#c62f2f', '#222222'


def run(target: Target) -> dict[str, Any]:
    """Compares, writes figures and the closest pairs: a picture, or a table's lines."""
    coins = np.random.default_rng(0)
    synthetic = _some(target.synthetic, MOST, coins)
    number = min(len(target.members), len(target.non_members), MOST)
    if not number:
        raise UserError(
            '--workdir',
            f'has no held-out {target.records}',
            'Set config.data.test_fraction',
        )
    everywhere = nearest(synthetic, target.members)
    among = nearest(synthetic, _some(target.members, number, coins))
    outside = nearest(synthetic, _some(target.non_members, number, coins))
    found = _figures(everywhere, among, outside)
    found |= {
        'synthetic': len(synthetic),
        'train': len(target.members),
        'each_side': number,
        'records': target.records,
    }
    target.write_json('memorisation', found)
    if target.columns:
        lines = _lines(synthetic, target, everywhere)
        target.write_csv('closest_pairs', lines)
    else:
        picture = _picture(synthetic, target.members, everywhere)
        target.write_png('closest_pairs', picture)
    return found


def _lines(
    synthetic: np.ndarray, target: Target, found: Nearest
) -> Iterator[list[str]]:
    """The closest pairs in the units of the columns, two lines each."""
    low, high = (
        np.array([getattr(column, end) for column in target.columns])
        for end in ('low', 'high')
    )
    yield ['distance', 'row', *(column.name for column in target.columns)]
    for index in _distinct(found):
        both = synthetic[index], target.members[found.place[index]]
        for name, row in zip(('synthetic', 'training'), both, strict=True):
            values = low + (high - low) * row.ravel()
            cells = (f'{value:.7g}' for value in values)
            yield [f'{found.distance[index]:.4g}', name, *cells]


def _some(images: np.ndarray, most: int, coins: np.random.Generator) -> np.ndarray:
    number = min(len(images), most)
    return images[np.sort(coins.choice(len(images), number, replace=False))]


def _figures(everywhere: Nearest, among: Nearest, outside: Nearest) -> dict[str, Any]:
    nearer = int(np.sum(among.distance < outside.distance))
    decided = nearer + int(np.sum(among.distance > outside.distance))
    interval = stats.binomtest(nearer, max(decided, 1)).proportion_ci(0.95)
    ratio = among.distance / np.maximum(outside.distance, 1e-6)
    return {
        'nearer_to_train': {
            'value': nearer / max(decided, 1),
            'low': interval.low,
            'high': interval.high,
        },
        'distance_ratio_train_to_test': {
            f'{name}': float(np.quantile(ratio, at))
            for name, at in (('1 %', 0.01), ('median', 0.5), ('99 %', 0.99))
        },
        'least_distance_to_train': float(everywhere.distance.min()),
        'median_distance_to_train': float(np.median(everywhere.distance)),
        'exact_copies': int(np.sum(everywhere.distance < 1e-3)),
    }


def table(found: dict[str, Any]) -> str:
    """The figures."""
    share, ratio = found['nearer_to_train'], found['distance_ratio_train_to_test']
    records = found['records']
    return '\n'.join(
        [
            f'synthetic {records} nearer to training than to held-out {records}: '
            f'{share["value"]:.4f} [{share["low"]:.4f}, {share["high"]:.4f}]; '
            f'{found["each_side"]} real {records} on either side; 0.5: no difference',
            f'distance to the nearest of the training / held-out {records}: median '
            f'{ratio["median"]:.4f}, lowest 1 % below {ratio["1 %"]:.4f}',
            f'nearest of all {found["train"]} training {records}: median distance '
            f'{found["median_distance_to_train"]:.3f}, least '
            f'{found["least_distance_to_train"]:.3f}; exact copies: '
            f'{found["exact_copies"]} of {found["synthetic"]}',
        ]
    )


def _picture(synthetic: np.ndarray, members: np.ndarray, found: Nearest) -> Image.Image:
    """The closest pairs (synthetic | nearest training image), ascending by distance."""
    order = _distinct(found)
    rows = -(-len(order) // ACROSS)
    pair, height, top = 2 * TILE + 3 * GAP, TILE + 26, 64
    page = Image.new('RGB', (ACROSS * pair + GAP, top + rows * height + GAP), 'white')
    draw = ImageDraw.Draw(page)
    small, large = ImageFont.load_default(12), ImageFont.load_default(17)
    draw.rectangle((0, 0, page.width, 30), fill=RED)
    draw.text((GAP + 4, 5), WARNING, 'white', large)
    text = (
        'closest pairs: synthetic | nearest training image; below: distance of pixels'
    )
    draw.text((GAP + 4, 38), f'{text} in [0, 1]', INK, small)
    for place, index in enumerate(order):
        x = GAP + place % ACROSS * pair
        y = top + place // ACROSS * height
        page.paste(_tile(synthetic[index]), (x, y))
        page.paste(_tile(members[found.place[index]]), (x + TILE + 2, y))
        draw.rectangle((x + TILE + 2, y, x + 2 * TILE + 1, y + TILE - 1), outline=RED)
        middle = (x + TILE, y + TILE + 4)
        draw.text(middle, f'{found.distance[index]:.2f}', INK, small, anchor='ma')
    return page


def _distinct(found: Nearest) -> list[int]:
    """The closest, each training image once."""
    chosen, seen = [], set()
    for index in np.argsort(found.distance):
        if found.place[index] not in seen:
            seen.add(found.place[index])
            chosen.append(int(index))
        if len(chosen) == PAIRS:
            break
    return chosen


def _tile(image: np.ndarray) -> Image.Image:
    shown = image[..., 0] if image.shape[-1] != 3 else image
    return Image.fromarray(np.ascontiguousarray(shown)).convert('RGB').resize(
        (TILE, TILE), Image.Resampling.NEAREST
    )  # fmt: skip
