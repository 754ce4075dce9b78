"""What a table is: rows and columns, which run belongs to a cell, and what was printed.

A table holds no code. Its rows name a method and what they change of its config, its columns
data, epsilon and a figure. `papers/printed.csv` has what the paper prints in a cell.
"""

import csv
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

PRINTED = pathlib.Path(__file__).parent / 'papers' / 'printed.csv'
# What stands beside a figure of a network whose weights a run may lack, by its own name.
COUNTERPARTS = {'fid': 'fd_efficientnet_lite0', 'is': 'is_efficientnet_lite0'}
# How the papers' epsilon of a method is to be read.
CLAIMED = 'claimed, and its proof fails'
DATA_DEPENDENT = 'data-dependent, not released privately'
STATED = 'stated, no fault known'
NONE = 'none'


class Column(NamedTuple):
    """One column.

    Attributes:
        data: a name of `data_sets.DATA_SETS`.
        epsilon: of the runs; None: each row's own.
        figure: what is printed or measured; a name of `measured.FIGURES`.
        records: of the training data, if only the first are taken; 0: all.
    """

    data: str
    epsilon: float | None
    figure: str
    records: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One row: a method, or a setting of one.

    Attributes:
        label: as the paper has it; the key to what is printed.
        method: of `methods.METHODS`, or of `scales.FORMS`; '': not implemented here.
        printed_epsilon: how the epsilon of the paper's figure is to be read.
        settings: config fields by their path, on top of the method's config.
        epsilons: the only ones that this row has; (): every column's.
        strategy: of gradient inversion, for rows that are attacked.
        public: a name of `data_sets.PUBLIC`: images that training starts from.
    """

    label: str
    method: str = ''
    printed_epsilon: str = STATED
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    epsilons: tuple[float, ...] = ()
    strategy: str = ''
    public: str = ''

    def epsilon(self, column: Column) -> float | None:
        """Epsilon of this row in a column; None where it has no cell there."""
        if column.epsilon is None:
            return self.epsilons[0]
        if self.epsilons and column.epsilon not in self.epsilons:
            return None
        return column.epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        name: 'dpaf/1'.
        title: what it compares.
        source: where it is printed.
        rows: in the paper's order; ours last.
        data: names of data sets, one group of columns each.
        epsilons: of the columns; (None,): each row's own.
        figures: what is printed in a cell.
        records: numbers of training records; (0,): all there are.
        note: what a reader has to know.
    """

    name: str
    title: str
    source: str
    rows: tuple[Row, ...]
    data: tuple[str, ...]
    epsilons: tuple[float | None, ...] = (1.0, 10.0)
    figures: tuple[str, ...] = ('accuracy',)
    records: tuple[int, ...] = (0,)
    note: str = ''

    @property
    def columns(self) -> list[Column]:
        """All columns; a counterpart of our own follows FID and Inception score."""
        figures = [
            name
            for figure in self.figures
            for name in (figure, COUNTERPARTS.get(figure))
            if name
        ]
        return [
            Column(data, epsilon, figure, number)
            for data, epsilon, number, figure in itertools.product(
                self.data, self.epsilons, self.records, figures
            )
        ]

    @property
    def needs_all_classifiers(self) -> bool:
        """Whether it prints figures of classifiers beyond the usual two."""
        return 'mlp' in self.figures and 'credit' not in self.data


class Figure(NamedTuple):
    """A number with its standard deviation, if that is known."""

    value: float
    std: float | None = None


@functools.cache
def printed() -> dict[tuple[str, str, str, float, str], Figure]:
    """What papers print, by table, row, data, epsilon (0: none is said) and figure."""
    found = {}
    with PRINTED.open(newline='', encoding='utf-8') as file:
        for line in csv.DictReader(file):
            epsilon = float(line['epsilon'] or 0)
            key = (line['table'], line['row'], line['data'], epsilon, line['figure'])
            std = float(line['std']) if line['std'] else None
            found[key] = Figure(float(line['value']), std)
    return found


def printed_in(table: Table, row: Row, column: Column) -> Figure | None:
    """The paper's figure in a cell, if it has one."""
    epsilon = 0.0 if row.strategy else row.epsilon(column)
    if epsilon is None:
        return None
    return printed().get((table.name, row.label, column.data, epsilon, column.figure))
