"""Pictures of a table: what all methods make, side by side, and figures by epsilon and N."""

import io
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from dpaf_jax.runtime.text import number
from dpaf_jax.tables.data_sets import DATA_SETS
from dpaf_jax.tables.measured import FIGURES
from dpaf_jax.tables.page import WARNING, Page
from dpaf_jax.tables.runs import Cell
from dpaf_jax.tables.spec import Figure, printed_in

ACROSS = 10  # images of a strip, about
GAP = 2  # pixels between them
INCH = 0.62  # of a strip's image
DRAWN = ('accuracy', 'fd_efficientnet_lite0')
COLOURS = [f'C{i}' for i in range(10)]


def all_pictures(made: Page) -> Iterator[tuple[str, bytes]]:
    """Name and PNG of each picture for which there is something to show."""
    for data in made.table.data:
        strips = _strips(made, data)
        if strips:
            yield f'samples-{data.replace(":", "-")}', _sheet(made, data, strips)
    if made.setup.scale.is_smoke:
        return  # no figure there means anything
    for axis, several in (
        ('epsilon', len({*made.table.epsilons} - {math.inf}) > 1),
        ('records', len(made.table.records) > 1),
    ):
        lines = _curves(made, axis) if several else []
        if lines:
            yield axis, _plots(made, axis, lines)


# --- samples ----------------------------------------------------------------------------


class Strip(NamedTuple):
    """Images of one method in a row.

    Attributes:
        label: in front of it.
        images: [n, H, W, C] uint8, class by class.
    """

    label: str
    images: np.ndarray


def _strips(made: Page, data: str) -> list[Strip]:
    """The first images of each class, of each line's run at the largest finite epsilon."""
    from dpaf_jax.release.export import read_npz  # late: it brings JAX

    strips, seen = [], set()
    there = [cell for cell in made.cells if cell.column.data == data]
    for cell in sorted(there, key=_rank(made)):
        line = (cell.row.label, cell.guarantee)
        run = cell.runs[0]
        if line in seen or not run.is_done or cell.row.method == 'real':
            continue
        images, labels = read_npz(run.workdir.samples)
        if cell.row.strategy or images.dtype != np.uint8:
            continue
        seen.add(line)
        mode = cell.guarantee.replace('_', ' ')
        if not made.setup.scale.is_smoke:  # which runs another
            mode += f', ε = {number(cell.epsilon)}'
        strips.append(
            Strip(
                f'{cell.row.label}\n{mode}',
                first_of_each(images, labels, run.config.data.num_classes),
            )
        )
    return strips


def _rank(made: Page) -> Callable[[Cell], tuple[float, ...]]:
    """Rows in their order; of a row's cells the largest finite epsilon and N first."""
    order = [row.label for row in made.table.rows]

    def rank(cell: Cell) -> tuple[float, ...]:
        finite = -cell.epsilon if math.isfinite(cell.epsilon) else 0.0
        records = -(cell.column.records or math.inf)
        return order.index(cell.row.label), finite, records

    return rank


def first_of_each(
    images: np.ndarray, labels: np.ndarray, num_classes: int, across: int = ACROSS
) -> np.ndarray:
    """The first images of each class as they come, not chosen ones.

    Args:
        images: [N, H, W, C].
        labels: [N] in [0, num_classes).
        num_classes: K.
        across: images in all, or K where there are more classes.

    Returns:
        [n, H, W, C], class by class.
    """
    each = max(1, across // num_classes)
    chosen = [np.flatnonzero(labels == k)[:each] for k in range(num_classes)]
    return images[np.concatenate(chosen)]


def strip(images: np.ndarray) -> np.ndarray:
    """[H, n * (W + gap), 3] uint8 on white."""
    colour = np.repeat(images[..., :1], 3, -1) if images.shape[-1] < 3 else images
    padded = np.pad(
        colour[..., :3], ((0, 0), (0, 0), (0, GAP), (0, 0)), constant_values=255
    )
    return np.concatenate(list(padded), axis=1)


def _sheet(made: Page, data: str, strips: list[Strip]) -> bytes:
    across = max(len(each.images) for each in strips)
    size = (2.4 + INCH * across, 0.6 + INCH * 1.15 * len(strips))
    drawing = Drawing(figsize=size, layout='constrained')
    grid = drawing.subplots(len(strips), 1, squeeze=False)[:, 0]
    for axes, each in zip(grid, strips, strict=True):
        axes.imshow(strip(each.images), interpolation='nearest')
        axes.set_ylabel(
            each.label, rotation=0, ha='right', va='center', fontsize=8, labelpad=8
        )
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    drawing.suptitle(_title(made, DATA_SETS[data].title), fontsize=9)
    return _png(drawing)


# --- curves -----------------------------------------------------------------------------


class Curve(NamedTuple):
    """One line of one panel.

    Attributes:
        data: the panel's column.
        figure: the panel's row.
        label: of the line.
        colour: the row's.
        mode: a key of STYLES.
        points: epsilon or N, and what is found there.
    """

    data: str
    figure: str
    label: str
    colour: str
    mode: str
    points: list[tuple[float, Figure]]


STYLES: dict[str, Literal[':', '-', '--']] = {
    'as_published': ':',
    'certified': '-',
    'printed': '--',
}


def _curves(made: Page, axis: str) -> list[Curve]:
    """Every line with two points or more."""
    points: dict[tuple[str, str, str, str], list[tuple[float, Figure]]] = {}

    def add(key: tuple[str, str, str, str], x: float, figure: Figure) -> None:
        at = points.setdefault(key, [])
        if x and x not in [known for known, _ in at]:
            at.append((x, figure))

    for cell, each in zip(made.cells, made.found, strict=True):
        for figure in DRAWN:
            if figure in each.figures:
                label, x = _line_and_place(cell, axis)
                key = (cell.column.data, figure, label, cell.guarantee)
                add(key, x, each.figures[figure])
    for row, column in itertools.product(made.table.rows, made.table.columns):
        there = printed_in(made.table, row, column)
        epsilon = row.epsilon(column)
        if there and axis == 'epsilon' and epsilon and math.isfinite(epsilon):
            add((column.data, column.figure, row.label, 'printed'), epsilon, there)
    lines = list(dict.fromkeys(label for _, _, label, _ in points))
    return [
        Curve(
            data,
            figure,
            f'{label}, {mode.replace("_", " ")}',
            COLOURS[lines.index(label) % len(COLOURS)],
            mode,
            sorted(found),
        )
        for (data, figure, label, mode), found in points.items()
        if len(found) > 1 and figure in DRAWN
    ]


def _line_and_place(cell: Cell, axis: str) -> tuple[str, float]:
    """Which line a cell is of, and where it stands on it; 0: nowhere."""
    if axis == 'records':
        label = f'{cell.row.label}, ε = {number(cell.epsilon)}'
        return label, float(cell.runs[0].config.data.num_examples)
    whole = math.isfinite(cell.epsilon) and not cell.column.records
    return cell.row.label, cell.epsilon if whole else 0.0


def _plots(made: Page, axis: str, curves: list[Curve]) -> bytes:
    figures = [name for name in DRAWN if any(c.figure == name for c in curves)]
    data = [name for name in made.table.data if any(c.data == name for c in curves)]
    size = (3.2 * len(data) + 3.0, 2.8 * len(figures) + 0.5)
    drawing = Drawing(figsize=size, layout='constrained')
    grid = drawing.subplots(len(figures), len(data), squeeze=False)
    for (i, figure), (j, name) in itertools.product(
        enumerate(figures), enumerate(data)
    ):
        axes = grid[i, j]
        for curve in curves:
            if (curve.figure, curve.data) == (figure, name):
                _draw(axes, curve)
        places = sorted({x for curve in curves for x, _ in curve.points})
        axes.set_xscale('log')
        axes.set_xticks(places, [f'{x:g}' for x in places], fontsize=8)
        axes.minorticks_off()
        axes.set_xlabel('ε' if axis == 'epsilon' else 'training records')
        axes.set_ylabel(FIGURES[figure])
        axes.set_title(DATA_SETS[name].title, fontsize=9)
        axes.grid(alpha=0.3)
    labelled = {c.label: (c.colour, c.mode) for c in curves}
    handles = [
        Line2D([], [], color=colour, ls=STYLES[mode], label=label)
        for label, (colour, mode) in labelled.items()
    ]
    drawing.legend(handles=handles, loc='outside right center', fontsize=7)
    drawing.suptitle(_title(made, made.table.title), fontsize=9)
    return _png(drawing)


def _draw(axes: Axes, curve: Curve) -> None:
    x = [place for place, _ in curve.points]
    y = [figure.value for _, figure in curve.points]
    spread = [figure.std or 0.0 for _, figure in curve.points]
    axes.errorbar(
        x,
        y,
        spread,
        color=curve.colour,
        linestyle=STYLES[curve.mode],
        marker='.',
        capsize=2,
        linewidth=1,
    )


def _title(made: Page, text: str) -> str:
    title = f'{text} ({made.table.source})'
    is_smoke = made.setup.scale.is_smoke
    return f'For {title}\n{WARNING}' if is_smoke else title


def _png(drawing: Drawing) -> bytes:
    buffer = io.BytesIO()
    drawing.savefig(buffer, format='png', dpi=110, metadata={'Software': None})
    return buffer.getvalue()
