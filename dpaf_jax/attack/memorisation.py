"""Memorisation: are synthetic images nearer to training images than to held-out ones?

A generator that copies makes images whose nearest real image is one that it was trained on.
One that has learnt the distribution does not know which images were held out: the nearest
of all real images is a training image as often as training images are frequent. How often
by chance depends on the real images, since some are near to many synthetic ones; so what
chance can do is told by a permutation test over the real images. Rows of a table
likewise: they are near in units of their columns' public bounds.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dpaf_jax.attack import permutation
from dpaf_jax.attack.distances import Nearest, nearest
from dpaf_jax.attack.permutation import Findings, permutation_test, tops
from dpaf_jax.attack.target import WARNING, Target
from dpaf_jax.runtime.errors import UserError

MOST = 10000  # synthetic images looked at
PAIRS = 24  # shown
ACROSS = 8  # pairs in a row of the picture
TILE, GAP = 64, 6
RED, INK = '#c62f2f', '#222222'


def run(target: Target) -> dict[str, Any]:
    """Compares, writes figures and the closest pairs: a picture, or a table's lines."""
    synthetic, among, findings = attack(target)
    made = _distances(among) | {
        'synthetic': len(synthetic),
        'train': len(target.members),
        'held_out': len(target.non_members),
        'records': target.records,
        'guarantee': target.privacy['guarantee'],
        'epsilon': target.privacy.get('epsilon'),
        'chance': findings.to_json(),
        'found': findings.found,
    }
    made['verdict'] = verdict(made)
    target.write_json('memorisation', made)
    if target.columns:
        lines = _lines(synthetic, target, among)
        target.write_csv('closest_pairs', lines)
    else:
        picture = _picture(synthetic, target.members, among)
        target.write_png('closest_pairs', picture)
    return made


class Attacked(NamedTuple):
    """What is known of each synthetic image that was looked at.

    Attributes:
        synthetic: [n, H, W, C], at most MOST.
        among: the nearest training images.
        findings: whether they are nearer than chance explains.
    """

    synthetic: np.ndarray
    among: Nearest
    findings: Findings


def attack(target: Target) -> Attacked:
    """Looks for the nearest real image of each synthetic one.

    Raises:
        UserError: no image is held out.
    """
    if not len(target.non_members):
        raise UserError(
            '--workdir',
            f'has no held-out {target.records}',
            'Set config.data.test_fraction',
        )
    rng = np.random.default_rng(0)
    number = min(len(target.synthetic), MOST)
    chosen = rng.choice(len(target.synthetic), number, replace=False)
    synthetic = target.synthetic[np.sort(chosen)]
    pool = Pool(target.members, target.non_members, rng)
    hits = nearest(synthetic, pool)
    findings = look(hits, pool.order < len(target.members), target.records)
    among = _among_members(synthetic, target.members, pool, hits)
    return Attacked(synthetic, among, findings)


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


class Pool:
    """All real images in random order, so that equally near ones win by a fair draw.

    Attributes:
        order: [N + M] where each stands among the training and then held-out images.
    """

    def __init__(
        self, members: np.ndarray, non_members: np.ndarray, rng: np.random.Generator
    ):
        self._members, self._others = members, non_members
        self.order = rng.permutation(len(members) + len(non_members))

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, part: slice) -> np.ndarray:
        """Reads no more than these: the images may be too many for memory."""
        places, number = self.order[part], len(self._members)
        is_member = places < number
        found = np.empty((len(places), *self._members.shape[1:]), self._members.dtype)
        found[is_member] = self._members[places[is_member]]
        found[~is_member] = self._others[places[~is_member] - number]
        return found


def _among_members(
    synthetic: np.ndarray, members: np.ndarray, pool: Pool, hits: Nearest
) -> Nearest:
    """The nearest training images: known already where the nearest of all is one."""
    place, distance = pool.order[hits.place], hits.distance.copy()
    others = np.flatnonzero(place >= len(members))
    if others.size:
        found = nearest(synthetic[others], members)
        place[others], distance[others] = found.place, found.distance
    return Nearest(distance, place)


def look(hits: Nearest, is_training: np.ndarray, records: str) -> Findings:
    """What the nearest real images show beyond chance: of all, and of the closest hits.

    Args:
        hits: of each synthetic image, its nearest real one.
        is_training: [n] bool, of each real image.
        records: what they are called.
    """
    ordered, weights = np.sort(hits.distance), {}
    for top in [*tops(len(ordered)), len(ordered)]:
        closest = hits.distance <= ordered[top - 1]  # more than `top` if equally close
        counts = np.bincount(hits.place[closest], minlength=len(is_training))
        which = f'{top} closest' if top < len(ordered) else f'all {top}'
        weights[f'{which} synthetic {records}'] = counts / counts.sum()
    return permutation_test(weights, is_training)


def _distances(among: Nearest) -> dict[str, Any]:
    return {
        'least_distance_to_train': float(among.distance.min()),
        'median_distance_to_train': float(np.median(among.distance)),
        'exact_copies': int(np.sum(among.distance < 1e-3)),
    }


def verdict(made: dict[str, Any]) -> str:
    """One sentence, or a few."""
    records = made['records']
    if not made['found']:
        return permutation.nothing(
            f'synthetic {records} are not nearer to training {records} than chance '
            'explains',
            made['chance'],
        )
    if made['epsilon'] is None:
        within = f'Nothing is promised against it ({made["guarantee"]}).'
    else:
        within = (
            f'Whether epsilon = {made["epsilon"]:.4g} permits that much, '
            '--attack=membership tells.'
        )
    what = f'synthetic {records} are nearer to training than to held-out {records}'
    return permutation.something(what, made['chance'], within)


def table(made: dict[str, Any]) -> str:
    """The figures and the verdict."""
    records, looks = made['records'], made['chance']['looks']
    lines = [
        f'{f"nearest real one is among training {records}":<46}{"share":>8}'
        f'{"by chance":>11}{"at most":>10}'
    ]
    for name, seen in looks.items():
        lines.append(
            f'{name:<46}{seen["value"]:>8.4f}{seen["expected"]:>11.4f}'
            f'{min(seen["limit"], 1):>10.4f}'
        )
    lines += [
        f'{made["train"]} training and {made["held_out"]} held-out {records}; chance '
        f'alone goes beyond any limit in {100 * permutation.ALARM:g} % of cases',
        f'nearest training {records[:-1]}: median distance '
        f'{made["median_distance_to_train"]:.3f}, least '
        f'{made["least_distance_to_train"]:.3f}; exact copies: '
        f'{made["exact_copies"]} of {made["synthetic"]}',
    ]
    return '\n'.join([*lines, '', made['verdict']])


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
