"""Appends the figures of a finished run to docs/results.csv.

    python -m experiments.record --workdir=runs/mnist --config_name=recommended.py:mnist,1 \
        --data=mnist --hardware='2 CPU cores, idle' --source=docs/results.md
    python docs/tables.py

A row for each classifier, all of one generator. What the run's report knows is read there; the
other columns are what you state. docs/results.md says what each means.
"""

import csv
import io
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpaf_jax.runtime.command import errors_in_one_line, fail, parse, require, start
from dpaf_jax.runtime.files import read_json, write_text

RESULTS = pathlib.Path(__file__).parent.parent / 'docs' / 'results.csv'
# As the file names them.
CLASSIFIERS = {'logistic_regression': 'logreg', 'wide_resnet': 'wrn-16-2'}

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of the run.', allow_override=True)
# Not `config`: that flag would take the place of the one that reads a config.
_CONFIG = flags.DEFINE_string(
    'config_name', None, "Without its folder, as 'mnist.py:canonical'."
)
_DATA = flags.DEFINE_string(
    'data', None, "As other rows name them: 'mnist'.", allow_override=True
)
_HARDWARE = flags.DEFINE_string(
    'hardware', None, "For example '1 of 2 CPU cores, shared'.", allow_override=True
)
_OVERRIDES = flags.DEFINE_string(
    'overrides', '', "What was set beside the config: 'samples.num=20000'."
)
_STATE = flags.DEFINE_string('state', '', 'What else was different.')
_SOURCE = flags.DEFINE_string(
    'source', 'docs/results.md', 'The page that states it.', allow_override=True
)
_NOTE = flags.DEFINE_string('note', '', 'For people.', allow_override=True)
_OUT = flags.DEFINE_string('out', str(RESULTS), 'The file.', allow_override=True)


def new_rows(
    report: dict[str, Any], stated: dict[str, str], generator: str
) -> list[dict[str, str]]:
    """The columns that a run fills, for each classifier.

    Args:
        report: report.json.
        stated: columns that no report knows.
        generator: the id of the new one.
    """
    privacy, plan = report['config']['privacy'], report['privacy']
    is_private = plan['epsilon'] is not None or plan.get('claimed_epsilon') is not None
    common = {
        **stated,
        'records': str(plan['num_examples']),
        'method': report['method'],
        'guarantee': privacy['guarantee'] if is_private else 'none',
        'epsilon': f'{float(privacy["epsilon"]):g}',
        'delta': f'{plan["delta"]:g}'.replace('e-0', 'e-') if is_private else '',
        'generator': generator,
        'generators': '1',
        'commit': (report['environment'].get('commit') or '')[:7],
        'date': report['when'].partition(' ')[0],
        'seconds': f'{sum(report["wall_seconds"].values()):.0f}',
        'command': 'python -m dpaf_jax.main --workdir=runs/x '
        f'--config=configs/{stated["config"]}',
    }
    rows = []
    for name, found in report['accuracy']['synthetic'].items():
        seeds = len(found['values'])
        row = {
            **common,
            'classifier': CLASSIFIERS.get(name, name),
            'accuracy': f'{found["mean"]:.3f}',
            'classifier_std': f'{found["std"]:.3f}' if seeds > 1 else '',
            'classifier_seeds': str(seeds),
        }
        if name == 'cnn' and report.get('fidelity'):
            row |= _fidelity(report['fidelity'], stated['note'])
        rows.append(row)
    return rows


def _fidelity(found: dict[str, Any], note: str) -> dict[str, str]:
    distance = f'fd_efficientnet_lite0 {found["fd_efficientnet_lite0"]:.1f}'
    sides = f'{found["num_real"]} images a side'
    return {
        'precision': f'{found["precision"]:.3f}',
        'recall': f'{found["recall"]:.3f}',
        'note': '; '.join(filter(None, [distance, sides, note])),
    }


def next_generator(rows: Sequence[dict[str, str]]) -> str:
    """An id that no row has."""
    used = [r['generator'][1:] for r in rows if r['generator'].startswith('g')]
    return f'g{1 + max((int(n) for n in used if n.isdecimal()), default=0)}'


def main(argv: Sequence[str]) -> None:
    """The command."""
    needed = (_WORKDIR, _CONFIG, _DATA, _HARDWARE)
    workdir, *known = require(argv, {flag.name: flag.value for flag in needed})
    stated = dict(zip(('config', 'data', 'hardware'), known, strict=True))
    stated |= {flag.name: flag.value for flag in (_OVERRIDES, _STATE, _SOURCE, _NOTE)}
    path = pathlib.Path(_OUT.value)
    with errors_in_one_line(path, '--out'):
        report = read_json(pathlib.Path(workdir) / 'report.json')
        if report is None:
            fail(f'--workdir={workdir} has no report.json: finish the run first')
        source = path if path.exists() else RESULTS
        text = source.read_text(encoding='utf-8')
        if source != path:  # a file of its own begins with the head alone
            text = text.partition('\n')[0] + '\n'
        rows = list(csv.DictReader(io.StringIO(text)))
        made = new_rows(report, stated, next_generator(rows))
        added = io.StringIO()
        fields = text.partition('\n')[0].split(',')
        csv.DictWriter(added, fields, lineterminator='\n').writerows(made)
        write_text(path, text + added.getvalue())
    for row in made:
        print(row['generator'], row['classifier'], row['accuracy'], row.get('note', ''))


if __name__ == '__main__':
    start(main, parse)
