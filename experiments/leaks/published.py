"""The published DPAF leaks more than its claimed epsilon1; the certified one does not.

    python -m experiments.leaks.published --out=leak

Attacks the classifier's phase (conv1) in two games (games.py) and states a lower bound
on epsilon, at 99.9 % confidence for all attacks together, beside the epsilon1 that the
paper's theorem claims, or that the certified plan has. Then measures on real digits how far
one record moves the pre-noise sum (leave_one_out.py). Prints tables; writes
published_leak.json, leave_one_out.png. Exit status 1 if the certified mode was caught.
"""

import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from dpaf_jax.runtime.command import fail, parse, prepare_jax, start
from experiments.leaks.outcome import GUARANTEES, attack_all, content, exit_status

RECORDS = 4  # left out on real data

_OUT = flags.DEFINE_string(
    'out',
    None,
    'Folder for published_leak.json and leave_one_out.png.',
    allow_override=True,
)
_TRIALS = flags.DEFINE_integer(
    'trials',
    200,
    'Trainings on either side, in each game and mode.',
    lower_bound=10,
    allow_override=True,
)
_STEPS = flags.DEFINE_integer(
    'steps', 250, 'Steps of the measurement on digits; 0: none.', lower_bound=0
)


def measure(steps: int) -> dict[str, Any]:
    """Leave-one-out ratios on the embedded digits, config as printed, in both modes."""
    from configs import digits
    from dpaf_jax.config import from_config_dict
    from dpaf_jax.data import load, prepare
    from dpaf_jax.methods import dpaf
    from dpaf_jax.methods.dpaf.networks import make_networks
    from dpaf_jax.methods.dpaf.phase1.published import make_classifier
    from dpaf_jax.privacy.keys import RunKeys
    from experiments.leave_one_out import leave_one_out

    fields = digits.get_config('printed')
    fields.dpaf.classifier.batch_size = fields.dpaf.batch_size
    fields.privacy.budgets = '2,rest,2'  # the theorem cannot state 0.1 for so few
    made = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / 'data'
        for guarantee in GUARANTEES:
            fields.privacy.guarantee = guarantee
            config = from_config_dict(fields)
            prepare(config.data, folder)
            data = load(config.data, folder)
            plan = dpaf.plan(config, config.data.num_examples)
            classifier = make_classifier(make_networks(config), config, plan)
            # A record of a public data set; keys that are no secret.
            records = np.arange(RECORDS)
            keys = RunKeys(bytes(32), 'experiment')
            made[guarantee] = leave_one_out(classifier, data, records, steps, keys)
    return made


def describe(made: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The largest and the median ratio by mode, where the record was drawn and elsewhere."""
    found = {}
    for guarantee, ratios in made.items():
        drawn, elsewhere = ratios.ratio[ratios.is_drawn], ratios.ratio[~ratios.is_drawn]
        found[guarantee] = {
            'largest_drawn': float(drawn.max(initial=0)),
            'median_drawn': float(np.median(drawn)) if drawn.size else 0.0,
            'largest_not_drawn': float(elsewhere.max(initial=0)),
            'median_not_drawn': float(np.median(elsewhere)),
            'share_not_drawn_above_0': float(np.mean(elsewhere > 0)),
        }
    return found


def plot(made: dict[str, Any]) -> Any:
    """Ratio by step, on a logarithmic axis."""
    from dpaf_jax.attack.plots import BLUE, GREY, RED, figure, rendered

    steps = made['certified'].ratio.shape[1]
    at = np.arange(1, steps + 1)
    page = figure(
        'How far one record moves the pre-noise sum of conv1, over the claimed bound\n'
        'largest of a few records of the digits; certified: 0 where it is not drawn'
    )
    axes = page.subplots()
    axes.axhline(1, color=GREY, ls='--', label='claimed bound')
    for guarantee, colour in zip(GUARANTEES, (RED, BLUE), strict=True):
        ratios = made[guarantee]
        name = guarantee.replace('_', ' ')
        elsewhere = np.where(ratios.is_drawn, 0, ratios.ratio).max(axis=0)
        drawn = np.where(ratios.is_drawn, ratios.ratio, 0).max(axis=0)
        if elsewhere.any():
            label = f'{name}, record not drawn'
            axes.plot(
                at, np.where(elsewhere > 0, elsewhere, np.nan), colour, label=label
            )
        axes.plot(at, drawn, '.', color=colour, label=f'{name}, record drawn')
    axes.set(
        yscale='log', xlim=(0, steps), xlabel='step of phase 1', ylabel='change / bound'
    )
    axes.grid(True, which='major', color='#e2e2e2')
    page.legend(loc='outside lower center', ncols=4, fontsize=9)
    return rendered(page)


def main(_: Sequence[str]) -> None:
    """The command."""
    if _OUT.value is None:
        fail('give --out=<folder>; see python -m experiments.leaks.published --help')
    prepare_jax()
    # Imported late, so that --help answers at once.
    from dpaf_jax.release.pictures import save_png
    from dpaf_jax.runtime.files import write_json
    from experiments.leaks.games import GAMES

    began, out = time.monotonic(), pathlib.Path(_OUT.value)
    outcomes = attack_all(GAMES, _TRIALS.value)
    found = content(outcomes)
    if _STEPS.value:
        made = measure(_STEPS.value)
        found['leave_one_out'] = describe(made)
        for guarantee, figures in found['leave_one_out'].items():
            print(guarantee, {name: round(value, 4) for name, value in figures.items()})
        save_png(plot(made), out / 'leave_one_out.png')
    found['wall_seconds'] = round(time.monotonic() - began, 1)
    write_json(out / 'published_leak.json', found)
    sys.exit(exit_status(outcomes))


if __name__ == '__main__':
    start(main, parse)
