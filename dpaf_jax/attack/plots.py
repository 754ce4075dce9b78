"""Line plots as PNG, drawn with Pillow: ROC curves and what an attack measured.

For files that people look at outside a page; the report's charts are SVG (charts.py).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dpaf_jax.pipeline.charts import ticks

BLUE, RED, GREEN, GREY = '#2f6fde', '#c62f2f', '#2b8a3e', '#777777'
INK, PALE = '#222222', '#e2e2e2'
WIDTH, HEIGHT = 860, 560
LEFT, RIGHT, TOP, BOTTOM = 90, 30, 62, 70
OVERSAMPLING = 2  # Pillow's lines are jagged: drawn larger, then reduced


@dataclasses.dataclass(frozen=True)
class Curve:
    """One line, or dots without a line.

    Attributes:
        label: in the legend.
        x, y: [n]; what is not finite, or not above 0 on a logarithmic axis, is left out.
        colour: as Pillow reads it.
        kind: 'line', 'dashes' or 'dots'.
    """

    label: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    colour: str = BLUE
    kind: str = 'line'


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis: its label, its ends, and whether it counts in powers of ten."""

    label: str
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1 between the ends."""
        if self.log:
            span = math.log10(self.high / self.low)
            return math.log10(max(value, 1e-300) / self.low) / span
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers between the ends."""
        if self.log:
            first = math.ceil(math.log10(self.low) - 1e-9)
            last = math.floor(math.log10(self.high) + 1e-9)
            made = [10.0**i for i in range(first, last + 1)]
        else:
            made = ticks(self.low, self.high, 6)
        return [t for t in made if -1e-9 <= self.place(t) <= 1 + 1e-9]


def line_plot(curves: Sequence[Curve], title: str, x: Axis, y: Axis) -> Image.Image:
    """Draws curves with axes and a legend.

    Args:
        curves: drawn in order, later ones on top.
        title: one line, or two parted by a newline.
        x: horizontal axis.
        y: vertical axis; what lies beyond the ends of either is drawn at the end.

    Returns:
        RGB picture of 860 x 560.
    """
    page = Image.new('RGB', (WIDTH * OVERSAMPLING, HEIGHT * OVERSAMPLING), 'white')
    pen = _Pen(ImageDraw.Draw(page), x, y)
    pen.axes(title)
    for curve in curves:
        pen.curve(curve)
    pen.legend(curves)
    return page.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


class _Pen:
    def __init__(self, draw: ImageDraw.ImageDraw, x: Axis, y: Axis):
        self._draw, self._x, self._y = draw, x, y
        self._small = ImageFont.load_default(14 * OVERSAMPLING)
        self._large = ImageFont.load_default(16 * OVERSAMPLING)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        along = min(max(self._x.place(x), 0.0), 1.0)
        up = min(max(self._y.place(y), 0.0), 1.0)
        return (
            OVERSAMPLING * (LEFT + along * (WIDTH - LEFT - RIGHT)),
            OVERSAMPLING * (HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)),
        )

    def axes(self, title: str) -> None:
        """Grid, tick labels, axis labels and title."""
        s, x, y = OVERSAMPLING, self._x, self._y
        for tick in x.ticks():
            low, high = self._at(tick, y.low), self._at(tick, y.high)
            self._draw.line([low, high], PALE, s)
            text = f'{tick:g}'
            self._draw.text((low[0], low[1] + 6 * s), text, GREY, self._small, 'ma')
        for tick in y.ticks():
            low, high = self._at(x.low, tick), self._at(x.high, tick)
            self._draw.line([low, high], PALE, s)
            text = f'{tick:g}'
            self._draw.text((low[0] - 8 * s, low[1]), text, GREY, self._small, 'rm')
        corner = [self._at(x.low, y.high), self._at(x.low, y.low)]
        self._draw.line([*corner, self._at(x.high, y.low)], GREY, s)
        middle = s * (LEFT + WIDTH - RIGHT) / 2
        below = s * (HEIGHT - BOTTOM + 34)
        self._draw.text((middle, below), x.label, INK, self._small, 'ma')
        self._draw.text((s * 14, s * 8), title, INK, self._large, spacing=4 * s)
        self._sideways(y.label)

    def _sideways(self, label: str) -> None:
        s = OVERSAMPLING
        box = self._draw.textbbox((0, 0), label, self._small)
        strip = Image.new('RGB', (int(box[2]) + 4, int(box[3]) + 4), 'white')
        ImageDraw.Draw(strip).text((2, 0), label, INK, self._small)
        turned = strip.rotate(90, expand=True)
        middle = s * (TOP + HEIGHT - BOTTOM) // 2 - turned.height // 2
        self._draw._image.paste(turned, (12 * s, middle))

    def curve(self, curve: Curve) -> None:
        """One curve."""
        points = [
            self._at(float(x), float(y))
            for x, y in zip(curve.x, curve.y, strict=True)
            if self._shown(float(x), self._x) and self._shown(float(y), self._y)
        ]
        if curve.kind == 'dots':
            for point in points:
                self._dot(point, curve.colour)
        elif curve.kind == 'dashes':
            self._dashes(points, curve.colour)
        elif len(points) > 1:
            self._draw.line(points, curve.colour, 2 * OVERSAMPLING, joint='curve')

    @staticmethod
    def _shown(value: float, axis: Axis) -> bool:
        return math.isfinite(value) and (value > 0 or not axis.log)

    def _dot(self, point: tuple[float, float], colour: str) -> None:
        x, y = point
        r = 3 * OVERSAMPLING
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def _dashes(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        on, off = 7.0 * OVERSAMPLING, 5.0 * OVERSAMPLING
        walked = 0.0
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            length = math.hypot(x1 - x0, y1 - y0)
            done = 0.0
            while done < length:
                phase = (walked + done) % (on + off)
                step = min(length - done, (on if phase < on else on + off) - phase)
                if phase < on:
                    a, b = done / length, (done + step) / length
                    ends = [(x0 + t * (x1 - x0), y0 + t * (y1 - y0)) for t in (a, b)]
                    self._draw.line(ends, colour, 2 * OVERSAMPLING)
                done += max(step, 1e-6)
            walked += length

    def legend(self, curves: Sequence[Curve]) -> None:
        """In the lower right corner, on white."""
        s, step = OVERSAMPLING, 21 * OVERSAMPLING
        boxes = [self._draw.textbbox((0, 0), c.label, self._small) for c in curves]
        widest = max(box[2] for box in boxes)
        left = s * (WIDTH - RIGHT - 18) - widest
        top = s * (HEIGHT - BOTTOM - 12) - step * len(curves)
        box = (
            left - 44 * s,
            top - 6 * s,
            s * (WIDTH - RIGHT - 8),
            s * (HEIGHT - BOTTOM - 8),
        )
        self._draw.rectangle(box, fill='white', outline=PALE)
        for i, curve in enumerate(curves):
            y = top + i * step + 9 * s
            ends = [(left - 38 * s, y), (left - 10 * s, y)]
            if curve.kind == 'dots':
                self._dot((left - 24 * s, y), curve.colour)
            elif curve.kind == 'dashes':
                self._dashes(ends, curve.colour)
            else:
                self._draw.line(ends, curve.colour, 2 * s)
            self._draw.text((left, y), curve.label, INK, self._small, 'lm')
