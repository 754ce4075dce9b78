"""What a finished run says on the terminal: how good it is, and where everything is."""

import shlex
from typing import Any

from dpaf_jax.pipeline.figures import (
    MODEL_NAMES,
    OWN,
    bench_figure,
    failure,
    figure,
    floor_name,
)
from dpaf_jax.release.card import headline, is_certified
from dpaf_jax.runtime.command import CONSOLE, is_console
from dpaf_jax.runtime.files import read_json
from dpaf_jax.training.workdir import Workdir


def summary(workdir: Workdir) -> str:
    """A few lines for whoever started the run: its accuracies are not covered by epsilon.

    Args:
        workdir: of a run with a report.
    """
    report = read_json(workdir.report)
    samples = workdir.samples_csv if workdir.samples_csv.exists() else workdir.samples
    shared = (
        'may be shared' if is_certified(report['privacy']) else 'AS PRIVATE AS THE DATA'
    )
    places = {
        f'release, {shared}': f'{workdir.release}  ({headline(report["privacy"])})',
        f'samples, {shared}': samples,
        'report, for those who may see the data': workdir.report.with_suffix('.html'),
        'check it': _check(workdir),
    }
    return '\n'.join([*_accuracies(report), *_aligned(places)])


def _check(workdir: Workdir) -> str:
    """The command, as whoever reads it has spelled this one."""
    if is_console():
        return f'{CONSOLE} verify {shlex.quote(str(workdir.root))}'
    release = shlex.quote(str(workdir.release))
    return f'python -m dpaf_jax.verify --release={release}'


def _accuracies(report: dict[str, Any]) -> list[str]:
    made = report['accuracy'].get('synthetic', {})
    if not made:
        if not report['config']['data']['test_fraction'] and report['floor'] is None:
            return ['Not evaluated: data.test_fraction = 0 holds nothing out.']
        if report['floor'] is None:
            return ['Not evaluated yet: --stage=evaluate, then --stage=report.']
        return ['No accuracy: all are of one class.']
    rows = {MODEL_NAMES.get(name, name): figure(found) for name, found in made.items()}
    rows |= {name: f'{mean:.3f}' for name, mean in bench_figure(report).items()}
    rows |= {
        f'{MODEL_NAMES[name]}, in the release': figure(found)
        for name, found in report['accuracy'].get(OWN, {}).items()
    }
    rows |= {
        f'{MODEL_NAMES.get(name, name)}, by real data (ceiling)': figure(found)
        for name, found in report['ceiling'].items()
    }
    if report['floor'] is not None:
        rows[floor_name(report['config'])] = f'{report["floor"]:.3f}'
    failed = failure(report)
    also = ' (the ceiling has learnt from real training data)'
    also *= bool(report['ceiling'])
    told = [f'On real test data, not covered by ε{also}:', *_aligned(rows)]
    return [*told, failed] if failed else told


def _aligned(rows: dict[str, Any]) -> list[str]:
    width = max(map(len, rows))
    return [f'  {name:<{width}}  {value}' for name, value in rows.items()]
