"""Line plots as PNG by matplotlib, without its global state: for looking at outside a page.

The report's charts are SVG (pipeline/charts.py).
"""

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, GREY = '#2f6fde', '#c62f2f', '#777777'
DPI = 100


def figure(title: str, width: float = 8.6, height: float = 5.6) -> 'Figure':
    """An empty figure of that many hundreds of pixels."""
    from matplotlib.figure import Figure  # late: it is slow to import

    made = Figure((width, height), dpi=DPI, layout='constrained')
    made.suptitle(title, fontsize=12)
    return made


def rendered(made: 'Figure') -> Image.Image:
    """The figure as an RGB picture: pixels alone, no metadata."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(made)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert('RGB')
