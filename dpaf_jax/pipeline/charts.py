"""Line charts as inline SVG: no script, no network, colours from the page's CSS.

The page may set `--series` (line), `--grid` and `--muted` (ticks); text and axes take
the page's text colour.
"""

import math
from collections.abc import Callable, Sequence
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 420, 230
LEFT, RIGHT, TOP, BOTTOM = 70, 28, 14, 42
MAX_POINTS = 240


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
        from_zero: whether the vertical axis must show 0.

    Returns:
        An `<svg>` element; a line of text instead if there is no point to draw.
    """
    points = thin([p for p in points if all(math.isfinite(v) for v in p)], MAX_POINTS)
    if not points:
        return f'<p>{escape(title)}: nothing was recorded.</p>'
    heights = [y for _, y in points]
    heights += [reference] if reference is not None else []
    heights += [0.0] if from_zero else []
    x_ticks = ticks(points[0][0], points[-1][0], 5)
    y_ticks = ticks(min(heights), max(heights), 5)
    x_of = _scale(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT)
    y_of = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    return '\n'.join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="12" '
            f'aria-label="{escape(title)}" font-family="system-ui, sans-serif">',
            f'<title>{escape(title)}</title>',
            *(_y_tick(y, y_of(y), y_ticks) for y in y_ticks),
            *(_x_tick(x, x_of(x), x_ticks) for x in x_ticks),
            _axis_labels(x_label, y_label),
            *(
                []
                if reference is None
                else [_reference(y_of(reference), reference_label)]
            ),
            _curve([(x_of(x), y_of(y)) for x, y in points]),
            '</svg>',
        ]
    )


def ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten) around an interval.

    Args:
        low: lower end.
        high: upper end; widened if it does not exceed `low`.
        count: of intervals aimed at.

    Returns:
        Ascending, evenly spaced; the first is at most `low`, the last at least `high`.
    """
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """Averages equal runs of neighbours, so that at most `most` points are left."""
    run = max(1, math.ceil(len(points) / most))
    groups = [points[i : i + run] for i in range(0, len(points), run)]
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def tick_label(value: float, all_ticks: Sequence[float]) -> str:
    """A tick as text, with just the decimals that tell it from its neighbours."""
    step = all_ticks[1] - all_ticks[0]
    largest = max(abs(tick) for tick in all_ticks)
    if largest >= 1e6 or largest < 1e-3:
        return f'{value:.4g}'
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f'{value + 0.0:,.{decimals}f}'.replace(',', '\N{NARROW NO-BREAK SPACE}')


def _scale(
    low: float, high: float, start: float, stop: float
) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (stop - start)


def _y_tick(value: float, y: float, all_ticks: Sequence[float]) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
        'stroke="var(--grid, #ddd)"/>'
        f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end" '
        f'fill="var(--muted, #666)">{tick_label(value, all_ticks)}</text>'
    )


def _x_tick(value: float, x: float, all_ticks: Sequence[float]) -> str:
    base = HEIGHT - BOTTOM
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 4}" '
        'stroke="var(--muted, #666)"/>'
        f'<text x="{x:.1f}" y="{base + 17}" text-anchor="middle" '
        f'fill="var(--muted, #666)">{tick_label(value, all_ticks)}</text>'
    )


def _axis_labels(x_label: str, y_label: str) -> str:
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    return (
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" '
        'stroke="var(--muted, #666)"/>'
        f'<text x="{middle_x}" y="{HEIGHT - 6}" text-anchor="middle" '
        f'fill="currentColor">{escape(x_label)}</text>'
        f'<text transform="translate(12 {middle_y}) rotate(-90)" text-anchor="middle" '
        f'fill="currentColor">{escape(y_label)}</text>'
    )


def _reference(y: float, label: str) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
        'stroke="currentColor" stroke-dasharray="5 4"/>'
        f'<text x="{LEFT + 8}" y="{y + 15:.1f}" fill="currentColor">'
        f'{escape(label)}</text>'
    )


def _curve(pixels: Sequence[Point]) -> str:
    path = ' '.join(f'{x:.1f},{y:.1f}' for x, y in pixels)
    if len(pixels) == 1:
        x, y = pixels[0]
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="var(--series, #2f6fde)"/>'
        )
    return (
        f'<polyline points="{path}" fill="none" stroke="var(--series, #2f6fde)" '
        'stroke-width="1.8" stroke-linejoin="round"/>'
    )
