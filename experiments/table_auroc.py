"""What is a synthetic table of a method worth? AUROC beside that of the real rows.

    python -m experiments.table_auroc --table=breast_cancer --method=dp_merf --epsilons=1,10 \
        --out=auroc.jsonl

Trains the method's config `:table` at each epsilon and adds one JSON line a run. Tables, both
of scikit-learn: `breast_cancer`, 569 rows of 30 columns (Wolberg, Street, Mangasarian 1995);
`made`, 20 000 rows of 10 columns by `make_classification`, enough for 1000 teachers, which is
nearer to what PATE needs. AUROC is on real test rows, and so is the
ceiling of the same classifiers trained on the real training rows: no epsilon covers either.
"""

import csv
import importlib
import json
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from dpaf_jax.config import TABLE_METHODS, sections_of
from dpaf_jax.runtime.command import fail, parse, prepare_jax, start

_TABLE = flags.DEFINE_enum(
    'table', 'breast_cancer', ['breast_cancer', 'made'], 'Which.'
)
_METHOD = flags.DEFINE_enum('method', 'g_pate', TABLE_METHODS, 'Which generator.')
_EPSILONS = flags.DEFINE_list(
    'epsilons', ['1', '10'], 'Of the whole run; inf: no noise.', allow_override=True
)
_RUNS = flags.DEFINE_integer('runs', 1, 'At each epsilon.', lower_bound=1)
_OUT = flags.DEFINE_string('out', None, 'Lines are added.', allow_override=True)

# Round numbers above 0 that no nucleus of the published description exceeds by far: from the
# description, not from a look at rows. Mean, standard error and worst of ten measurements.
NUCLEUS = {
    'radius': (40, 4, 50),
    'texture': (50, 6, 60),
    'perimeter': (250, 30, 300),
    'area': (3000, 600, 5000),
    'smoothness': (0.3, 0.05, 0.3),
    'compactness': (0.5, 0.2, 1.2),
    'concavity': (0.6, 0.5, 1.5),
    'concave_points': (0.3, 0.1, 0.4),
    'symmetry': (0.4, 0.1, 0.8),
    'fractal_dimension': (0.15, 0.05, 0.3),
}
STATISTICS = 'mean', 'error', 'worst'


class Table(NamedTuple):
    """Rows and what is public of them.

    Attributes:
        rows: [N, F] float64.
        labels: [N] 0 or 1.
        columns: as config.data.columns.
        settings: of teachers, that fit so many rows.
    """

    rows: np.ndarray
    labels: np.ndarray
    columns: str
    settings: dict[str, Any]


def breast_cancer() -> Table:
    """569 rows: so few that a teacher has a dozen where there are forty of them."""
    from sklearn.datasets import load_breast_cancer

    rows, labels = load_breast_cancer(return_X_y=True)
    columns = ','.join(
        f'{name}_{statistic}:0:{bounds[i]}'
        for i, statistic in enumerate(STATISTICS)
        for name, bounds in NUCLEUS.items()
    )
    return Table(rows, labels, columns, {'teachers': 40, 'batch_size': 12})


def made() -> Table:
    """20 000 rows of 10 columns of about unit variance, two classes."""
    from sklearn.datasets import make_classification

    rows, labels = make_classification(
        20_000, 10, n_informative=5, n_redundant=3, random_state=0
    )
    columns = ','.join(f'x{i}:-6:6' for i in range(10))
    return Table(rows, labels, columns, {'teachers': 1000, 'batch_size': 16})


def write_csv(path: pathlib.Path, table: Table) -> None:
    """A line of names, then a line a row."""
    names = [column.partition(':')[0] for column in table.columns.split(',')]
    with path.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow([*names, 'label'])
        writer.writerows(
            [*row, label] for row, label in zip(table.rows, table.labels, strict=True)
        )


def config_of(table: Table, path: pathlib.Path, epsilon: float, method: str) -> Any:
    """The method's tabular setting; G-PATE's queries are few, since they set the noise."""
    config = importlib.import_module(f'configs.{method}').get_config('table')
    config.data.source, config.data.columns = f'table:{path}', table.columns
    config.privacy.epsilon = epsilon
    if epsilon == float('inf'):
        config.data.noisy_prior = 0.0
    config.evaluation.train_on_real, config.evaluation.seeds = True, 1
    if method == 'g_pate':
        config.g_pate.update({'steps': 200, 'generator_learning_rate': 4e-3})
    if method in ('g_pate', 'pate_gan'):
        config.g_pate.update(table.settings)
    return config


def measure(table: Table, epsilon: float, method: str) -> dict[str, Any]:
    """One run: AUROC by classifier, of synthetic and of real training rows."""
    from dpaf_jax.pipeline.synthesize import synthesize
    from dpaf_jax.runtime.files import read_json

    start = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_csv(folder / 'rows.csv', table)
        config = config_of(table, folder / 'rows.csv', epsilon, method)
        report = synthesize(config, folder / 'run').report
        real = read_json(folder / 'run' / 'nonprivate' / 'evaluation.json')['real']
    synthetic = report['accuracy']['synthetic']
    return {
        'synthetic': {name: x['mean'] for name, x in synthetic.items()},
        'real': {name: x['mean'] for name, x in real.items()},
        'method': method,
        'settings': {name: config[name].to_dict() for name in sections_of(method)},
        'cpu_seconds': round(time.process_time() - start, 1),
    }


def main(argv: Sequence[str]) -> None:
    """The command."""
    if not _OUT.value:
        fail('give --out; see --help')
    prepare_jax()
    table = {'breast_cancer': breast_cancer, 'made': made}[_TABLE.value]()
    for epsilon in map(float, _EPSILONS.value):
        for run in range(_RUNS.value):
            found = measure(table, epsilon, _METHOD.value)
            print(f'{_TABLE.value}, epsilon {epsilon:g}, run {run}')
            for name, value in found['synthetic'].items():
                print(f'  {name:<22} {value:.3f}   real rows {found["real"][name]:.3f}')
            row = {'table': _TABLE.value, 'epsilon': str(epsilon), 'run': run, **found}
            with pathlib.Path(_OUT.value).open('a') as file:
                file.write(json.dumps(row) + '\n')


if __name__ == '__main__':
    start(main, parse)
