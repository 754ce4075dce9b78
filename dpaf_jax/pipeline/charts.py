"""Line charts as inline SVG: no script, no network, colours from the page's CSS.

The page sets `--series` (line), `--grid` and `--muted` (ticks); text and the reference
line take the page's text colour.
"""

import io
import math
from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np

Point = tuple[float, float]

WIDTH, HEIGHT = 420, 230
MAX_POINTS = 240
# What is drawn, by what it becomes in the page. Black would be left out of the SVG.
TEXT, SERIES, GRID, MUTED = '#000001', '#000002', '#000003', '#000004'
FONT = 'DejaVu Sans'  # for measuring; matplotlib brings it
IN_THE_PAGE = {
    TEXT: 'currentColor',
    SERIES: 'var(--series)',
    GRID: 'var(--grid)',
    MUTED: 'var(--muted)',
    f"'{FONT}'": 'system-ui, sans-serif',
}
STYLE = {
    'svg.fonttype': 'none',  # text stays text
    'text.parse_math': False,
    'font.family': FONT,
    'font.size': 12,
    'figure.frameon': False,
    'axes.autolimit_mode': 'round_numbers',  # axes begin and end at a tick
    'axes.edgecolor': MUTED,
    'axes.facecolor': 'none',
    'axes.formatter.useoffset': False,
    'axes.grid': True,
    'axes.grid.axis': 'y',
    'axes.labelcolor': TEXT,
    'axes.spines.right': False,
    'axes.spines.top': False,
    'axes.xmargin': 0,
    'axes.ymargin': 0,
    'grid.color': GRID,
    'text.color': TEXT,
    'xtick.color': MUTED,
    'xtick.major.pad': 7,
    'xtick.major.size': 0,
    'ytick.color': MUTED,
    'ytick.major.pad': 7,
    'ytick.major.size': 0,
}


def line_chart(
    points: Sequence[Point],
    *,
    title: str,
    x_label: str,
    y_label: str,
    reference: float | None = None,
    reference_label: str = '',
    from_zero: bool = False,
) -> str:
    """Draws one curve with axes, ticks and labels.

    Args:
        points: (x, y) with x ascending; points that are not finite are left out, and
            neighbours are averaged where there are more than 240.
        title: for people who cannot see the picture.
        x_label: below the horizontal axis, with its unit.
        y_label: beside the vertical axis, with its unit.
        reference: height of a dashed line, such as a budget.
        reference_label: its name.
        from_zero: whether the vertical axis begins at 0.

    Returns:
        An `<svg>` element, every text in it escaped; '' if there is no point to draw.
    """
    from matplotlib import style  # late: it is slow to import
    from matplotlib.figure import Figure

    points = thin([p for p in points if all(map(math.isfinite, p))], MAX_POINTS)
    if not points:
        return ''
    with style.context(STYLE, after_reset=True):
        figure = Figure((WIDTH / 72, HEIGHT / 72), layout='constrained')  # in points
        axes = figure.subplots()
        width = 1.8 if len(points) > 1 else 6  # a dot
        x, y = zip(*points, points[-1], strict=True)
        axes.plot(x, y, color=SERIES, lw=width, solid_capstyle='round')
        if reference is not None:
            axes.axhline(reference, color=TEXT, lw=1, ls=(0, (5, 4)))
            axes.annotate(
                reference_label,
                (0, reference),
                xycoords=axes.get_yaxis_transform(),
                xytext=(8, -5),
                textcoords='offset points',
                va='top',
            )
        if from_zero:
            axes.set_ylim(bottom=0)
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.locator_params(nbins=6)
        axes.xaxis.set_major_formatter('{x:,.9g}')
        svg = io.BytesIO()
        figure.savefig(svg, format='svg', metadata={'Title': title})
    return _inline(svg.getvalue(), title)


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """Averages equal runs of neighbours, so that at most `most` points are left."""
    run = max(1, math.ceil(len(points) / most))
    groups = [points[i : i + run] for i in range(0, len(points), run)]
    return [tuple(np.mean(group, axis=0).tolist()) for group in groups]


def _inline(svg: bytes, title: str) -> str:
    """As an element of HTML: in the page's colours, without ids that could clash."""
    root = ElementTree.fromstring(svg)
    root.attrib |= {'role': 'img', 'aria-label': title}
    for element in list(root.iter()):
        for child in [*element.findall('{*}defs'), *element.findall('{*}metadata')]:
            element.remove(child)
        element.tag = element.tag.rpartition('}')[2]
        unwanted = ('id', 'clip-path')
        element.attrib = {k: v for k, v in element.items() if k not in unwanted}
        for drawn, meant in IN_THE_PAGE.items():
            if 'style' in element.attrib:
                element.set('style', element.attrib['style'].replace(drawn, meant))
    return ElementTree.tostring(root, encoding='unicode')
