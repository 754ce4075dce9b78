"""The ROC curve of each score with its confidence band, beside what is permitted."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from dpaf_jax.attack.plots import BLUE, GREY, RED, figure, rendered
from dpaf_jax.attack.roc import LEAST, Roc, permitted_tpr

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def roc_picture(
    curves: Mapping[str, Roc], alpha: float, bound: tuple[float, float] | None
) -> Image.Image:
    """Draws a panel for each score, from the least measurable FPR.

    Args:
        curves: by score, of equally many non-members.
        alpha: of each limit of the bands.
        bound: epsilon and delta; None where nothing is certified.
    """
    from matplotlib.ticker import LogLocator, NullLocator  # late: it is slow

    number = len(next(iter(curves.values())).non_members)
    least, rows = LEAST / number, -(-len(curves) // 2)
    page = figure(
        f'Membership inference on the release: NOT PRIVATE\nFPR below {least:.2g} is '
        f'not measurable with {number} held-out records',
        height=0.9 + 3.2 * rows,
    )
    axes = page.subplots(rows, 2, sharex=True, sharey=True, squeeze=False).ravel()
    for (name, roc), panel in zip(curves.items(), axes, strict=False):
        _panel(panel, name, roc, alpha)
        grid = np.geomspace(least, 1, 300)
        panel.plot(grid, grid, ':', color=GREY, label='guessing')
        if bound:
            label = f'permitted by epsilon = {bound[0]:.4g}'
            panel.plot(grid, permitted_tpr(grid, *bound), '--', color=RED, label=label)
    for panel in axes[len(curves) :]:
        panel.remove()
    axes[0].set(
        xscale='log', yscale='log', xlim=(least, 1), ylim=(min(least / 3, 0.1), 1.05)
    )
    for panel in axes[: len(curves)]:
        panel.set(xlabel='false positive rate', ylabel='true positive rate')
        panel.label_outer()
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter('{x:g}')
            axis.set_minor_locator(NullLocator())
    handles, labels = axes[0].get_legend_handles_labels()
    page.legend(handles, labels, loc='outside lower center', ncols=2, fontsize=9)
    return rendered(page)


def _panel(panel: 'Axes', name: str, roc: Roc, alpha: float) -> None:
    grid = np.geomspace(LEAST / len(roc.non_members), 1, 300)
    low, high = roc.band(grid, alpha)
    label = 'band, as sure as the table'
    panel.fill_between(grid, low, high, color=BLUE, alpha=0.18, lw=0, label=label)
    panel.plot(*roc.curve(), color=BLUE, label='measured')
    panel.set_title(name, fontsize=10)
    panel.grid(True, which='major', color='#e2e2e2')
