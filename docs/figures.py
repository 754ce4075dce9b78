"""Figures of runs: results.csv and published.csv, read and told as the pages tell them."""

import csv
import pathlib
import re
import statistics
from collections.abc import Iterable

DOCS = pathlib.Path(__file__).parent
NONE = '–'

Row = dict[str, str]


def read(name: str) -> list[Row]:
    """The rows of a file beside this one."""
    with (DOCS / name).open(newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


RESULTS, PUBLISHED = read('results.csv'), read('published.csv')

GREY = {'mnist': 'MNIST', 'fashion_mnist': 'Fashion-MNIST'}
CELLS = [(data, epsilon) for data in GREY for epsilon in (1, 10)]
FEWER_IMAGES = 'samples.num=20000'
NOW = 'drawn as of 2026-11-27'  # a state: what is recommended today
# With public features: the newest there is.
PUBLIC_NOW = (
    'drawn as of 2026-11-30',
    'settings of 2026-11-30',
    'settings of 2026-11-27',
)


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows whose fields have these values; None: any."""
    return [
        row
        for row in rows
        if all(row[name] == str(v) for name, v in wanted.items() if v is not None)
    ]


def measured(**wanted: object) -> str:
    """The figure of the rows that match: `mean ± std (generators)`.

    Raises:
        ValueError: a mean over generators matches beside others, which may be of it; or
            rows of several data sets, methods, guarantees or N match.
    """
    rows = select(
        RESULTS, **{'state': '', 'overrides': '', 'classifier': 'cnn'} | wanted
    )
    if not rows:
        return NONE
    for name in ('data', 'method', 'guarantee', 'records'):
        if len({row[name] for row in rows}) > 1:
            raise ValueError(f'rows of more than one {name}: {wanted}')
    values = [float(row['accuracy'] or row['auroc']) for row in rows]
    spread = statistics.stdev(values) if len(values) > 1 else None
    number = len(values)
    if any(row['std'] for row in rows):
        if len(rows) > 1:
            raise ValueError(f'a mean over generators beside other rows: {wanted}')
        spread, number = float(rows[0]['std']), int(rows[0]['generators'])
    text = f'{statistics.mean(values):.3f}'
    if spread is not None:
        text += f' ± {spread:.3f}' if spread >= 0.0005 else f' ± {spread:.1g}'
    return f'{text} ({number})' if rows[0]['generators'] else text


def recommended(source: str, epsilon: int, **wanted: object) -> str:
    """The figure of `recommended.py` as it is."""
    config = f'recommended.py:{source},{epsilon}'
    return measured(
        **{'config': config, 'overrides': None, 'state': NOW}
        | {'epsilon': epsilon, 'guarantee': 'certified'}
        | wanted
    )


def before(source: str, epsilon: int, **wanted: object) -> str:
    """The figure of `recommended.py` as it was before 2026-11-26."""
    return recommended(source, epsilon, **{'overrides': '', 'state': ''} | wanted)


def real(data: str, overrides: str, **wanted: object) -> str:
    """The figure of classifiers that learnt from the real images."""
    overrides = f'{overrides} evaluation.train_on_real=True'.strip()
    return measured(method='real', data=data, overrides=overrides, **wanted)


def published(method: str, data: str) -> str:
    """The accuracies of a paper at ε = 1 and 10."""
    found = [
        next(iter(select(PUBLISHED, method=method, data=data, epsilon=epsilon)), {})
        for epsilon in (1, 10)
    ]
    pair = [row.get('accuracy', '').removeprefix('0') or NONE for row in found]
    return NONE if pair == [NONE, NONE] else ' / '.join(pair)


def table(head: str, *rows: Iterable[str]) -> str:
    """A table in Markdown; strokes part the columns of `head`."""
    columns = head.split('|')
    lines = [columns, ['---'] * len(columns), *rows]
    return ''.join(
        f'| {" | ".join(cell.strip() for cell in line)} |\n' for line in lines
    )


def with_fidelity(rows: list[Row]) -> str:
    """The mean of rows: accuracy; Fréchet distance, precision, recall (generators)."""
    if not rows:
        return NONE
    accuracy = statistics.mean(float(row['accuracy']) for row in rows)
    number = f' ({len(rows)})' if len(rows) > 1 else ''
    return f'{accuracy:.3f}; {fidelity(rows)}{number}'


def fidelity(rows: list[Row]) -> str:
    """The mean of rows: Fréchet distance, precision, recall."""
    if not rows:
        return NONE
    parts = [[distance(r), float(r['precision']), float(r['recall'])] for r in rows]
    mean, *shares = map(statistics.mean, zip(*parts, strict=True))
    precision, recall = (f'{share:.2f}'.replace('0.', '.') for share in shares)
    places = 1 if mean < 10 else 0
    return f'{mean:.{places}f}, {precision}, {recall}'


def distance(row: Row) -> float:
    """Of a row that has one, in its note."""
    found = re.search(r'fd_efficientnet_lite0 ([0-9.]+)', row['note'])
    assert found, row
    return float(found[1])
