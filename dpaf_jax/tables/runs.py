"""From cells to runs: one config each, a folder named by its hash, a command."""

import dataclasses
import functools
import hashlib
import importlib
import itertools
import json
import math
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from dpaf_jax.runtime.command import own_configs
from dpaf_jax.runtime.files import json_text, read_json
from dpaf_jax.tables import data_sets
from dpaf_jax.tables.data_sets import Made
from dpaf_jax.tables.scales import CERTIFIED, FORMS, GUARANTEES, Scale, Settings
from dpaf_jax.tables.spec import Column, Row, Table
from dpaf_jax.training.workdir import Workdir

SMOKE_EPSILON = 10.0
MOST_TEACHERS = 100  # at smoke


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of the main job, and perhaps an attack on it.

    Attributes:
        file: of configs/.
        argument: behind its colon.
        settings: fields that are replaced, by their path.
        generator: which one of several that differ in nothing else.
        attack: its iterations and attempts; (): none.
        lacks: a data set that is not there; '' if none is missing.
        reads: an archive of ours that has to be written first, if there is one.
        out: the folder of all runs.
        inception_weights: the file that FID is measured with; '': it is not.
    """

    file: str
    argument: str
    settings: Settings
    generator: int
    attack: tuple[int, ...]
    lacks: str
    reads: Made | None
    out: pathlib.Path
    inception_weights: str = ''

    @property
    def config(self) -> ConfigDict:
        """Every field of the run, but for where decoded images and weights are kept.

        Runs of one config share it: it is not to be changed.

        Raises:
            KeyError: there is no such field.
        """
        return _config_of(self.file, self.argument, tuple(self.settings.items()))

    @functools.cached_property
    def key(self) -> str:
        """Tells runs apart: their config, the file that they read, and which generator."""
        content = json.dumps(self.config.to_dict(), sort_keys=True)
        text = f'{content} {self.generator} {self._data_mark}'
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def _data_mark(self) -> str:
        """Of the file that is read; '' of a folder, and of an archive of our own."""
        path = pathlib.Path(self.config.data.source.partition(':')[2])
        is_given = self.reads is None and path.is_file()
        return data_sets.mark_of(str(path), self.out / 'private') if is_given else ''

    @property
    def workdir(self) -> Workdir:
        """Where it runs."""
        return Workdir(self.out / 'runs' / self.key)

    @property
    def log(self) -> pathlib.Path:
        """What its commands print."""
        return self.out / 'runs' / f'{self.key}.log'

    @property
    def failure(self) -> str:
        """Why it has failed; '' if it has not, or was begun again."""
        path = self.failure_file
        return path.read_text(encoding='utf-8') if path.exists() else ''

    @property
    def failure_file(self) -> pathlib.Path:
        """Holds `failure`; absent where there is none."""
        return self.out / 'runs' / f'{self.key}.failed'

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        attacked = self.attack_file.exists() if self.attack else True
        return self.workdir.report.exists() and attacked and self._is_measured

    @property
    def _is_measured(self) -> bool:
        """Whether its evaluation has all that could be measured now."""
        evaluated = read_json(self.workdir.evaluation) or {}
        if lacked := evaluated.get('lacked'):
            from dpaf_jax.evaluation import suite  # late: JAX, for what is rarely so

            if lacked != suite.notices(self.config.evaluation):  # installed since
                return False
        if not self.inception_weights:
            return True
        wanted = data_sets.sha256_of(self.inception_weights)
        return bool(evaluated.get('inception_sha256') == wanted)

    @property
    def attack_file(self) -> pathlib.Path:
        """What the attack found."""
        return self.workdir.attack_file('gradient_inversion')

    @property
    def commands(self) -> list[list[str]]:
        """What is run, one after the other."""
        colon = ':' if self.argument else ''
        # Alike data are decoded once; the folder is as private as they are.
        section = json_text(self.config.data.to_dict()) + self._data_mark
        cache = self.out / 'private' / hashlib.sha256(section.encode()).hexdigest()[:12]
        settings = {**self.settings, 'data.cache': str(cache.resolve())}
        if self.inception_weights:
            settings['evaluation.inception_weights'] = self.inception_weights
        main = [
            *(sys.executable, '-m', 'dpaf_jax.main'),
            f'--config=configs/{self.file}.py{colon}{self.argument}',
            f'--workdir={self.workdir.root}',
            *(f'--config.{name}={value}' for name, value in settings.items()),
        ]
        if not self.attack:
            return [main]
        iterations, attempts = self.attack
        attack = [
            *(sys.executable, '-m', 'dpaf_jax.attack'),
            '--attack=gradient_inversion',
            f'--workdir={self.workdir.root}',
            f'--data={cache.resolve()}',
            f'--iterations={iterations}',
            f'--attempts={attempts}',
        ]
        return [main, attack]


class Cell(NamedTuple):
    """Runs of a row in a column under one guarantee; all figures there are theirs."""

    row: Row
    column: Column
    guarantee: str
    runs: tuple[Run, ...]

    @property
    def epsilon(self) -> float:
        """As the paper has it; `smoke` runs another."""
        epsilon = self.row.epsilon(self.column)
        assert epsilon is not None, 'a cell has one'
        return epsilon


@dataclasses.dataclass(frozen=True)
class Setup:
    """What the command was given.

    Attributes:
        name: of the scale.
        scale: how much computing.
        out: the folder of all tables.
        data: `--data`, if it was given.
        inception_weights: as for `Run`.
    """

    name: str
    scale: Scale
    out: pathlib.Path
    data: pathlib.Path | None = None
    inception_weights: str = ''


def cells(table: Table, setup: Setup) -> Iterator[Cell]:
    """Every cell that is implemented here, row by row."""
    for row in table.rows:
        for guarantee in forms(row):
            for column, *more in _sharing(table.columns):
                if row.epsilon(column) is not None:
                    cell = _cell(table, row, column, guarantee, setup)
                    yield from (cell, *(cell._replace(column=other) for other in more))


def _sharing(columns: list[Column]) -> Iterator[list[Column]]:
    """Columns that differ in the figure alone: the same runs have them all."""
    for _, group in itertools.groupby(columns, lambda c: c._replace(figure='')):
        yield list(group)


def forms(row: Row) -> list[str]:
    """The guarantees under which a row can run; none where it is not implemented."""
    known = FORMS.get(row.method, {})
    wanted = (CERTIFIED,) if row.strategy else GUARANTEES
    return [guarantee for guarantee in wanted if guarantee in known]


def _cell(table: Table, row: Row, column: Column, guarantee: str, setup: Setup) -> Cell:
    settings = {
        'privacy.guarantee': guarantee,
        'privacy.epsilon': row.epsilon(column),
        **setup.scale.settings(row.method),
        **row.settings,
    }
    if table.needs_all_classifiers:
        settings.setdefault('evaluation.suite', 'full')
    place, reads = _place(column, setup)
    lacks = column.data if place is None else ''
    place = place or {}
    if row.public:
        private, is_smoke = setup.out / 'private', setup.scale.is_smoke
        start, made = data_sets.public_images(
            row.public, setup.data, private, is_smoke=is_smoke
        )
        lacks = lacks or (row.public if start is None else '')
        place, reads = {**place, **(start or {})}, made or reads
    data = 'digits' if setup.scale.is_smoke else column.data
    file, argument = _config(row.method, data, guarantee)
    if column.data == 'credit':
        file, argument = 'credit', row.method
    if setup.scale.is_smoke:
        budgets = _loaded(file, argument)['privacy']['budgets']
        settings.update(_shrunk({'privacy.budgets': budgets} | settings))
        place = {**place, **_enlarged(row)}
    runs = tuple(
        Run(
            file=file,
            argument=argument,
            settings={**settings, **place},
            generator=i,
            attack=setup.scale.attack if row.strategy else (),
            lacks=lacks,
            reads=reads,
            out=setup.out,
            inception_weights=setup.inception_weights,
        )
        for i in range(setup.scale.repeats(row.method))
    )
    return Cell(row, column, guarantee, runs)


def _config(method: str, data: str, guarantee: str) -> tuple[str, str]:
    """A config file and its argument."""
    file, variant = FORMS[method][guarantee]
    if file:
        return file, data
    name, _, argument = data.partition(':')
    return name, ','.join(filter(None, (argument, variant)))


def _place(column: Column, setup: Setup) -> tuple[Settings | None, Made | None]:
    private = setup.out / 'private'
    if setup.scale.is_smoke:
        return data_sets.stand_in(column.data, private)
    place = data_sets.located(column.data, setup.data)
    if place is None or not column.records:
        return place, None
    source = str(place.get('data.source', ''))
    return data_sets.first_records(source, column.records, private)


def _shrunk(settings: Settings) -> Settings:
    """What no stand-in could bear, at the same proportions."""
    epsilon, teachers = settings['privacy.epsilon'], settings.get('g_pate.teachers', 0)
    made: dict[str, Any] = {}
    if math.isfinite(epsilon):
        made['privacy.epsilon'] = SMOKE_EPSILON
        # With few records the papers' theorem states no epsilon as small as they print.
        entries = map(_of_smoke, settings['privacy.budgets'].split(','))
        made['privacy.budgets'] = ','.join(entries)
    if teachers > MOST_TEACHERS:
        made['g_pate.teachers'] = teachers // MOST_TEACHERS
    return made


def _of_smoke(entry: str) -> str:
    """A budget in epsilon, of 1, as so much of `SMOKE_EPSILON`; others as they are."""
    is_share = entry == 'rest' or entry.endswith('%')
    return entry if is_share else f'{SMOKE_EPSILON * float(entry):g}'


def _enlarged(row: Row) -> Settings:
    """A row about layers needs images that they do not shrink to one pixel."""
    return {'data.image_size': 32} if 'networks.layers' in row.settings else {}


@functools.cache
def _config_of(
    file: str, argument: str, settings: tuple[tuple[str, Any], ...]
) -> ConfigDict:
    config = ConfigDict(_loaded(file, argument)).lock()
    config.update_from_flattened_dict(dict(settings))
    return config


@functools.cache
def _loaded(file: str, argument: str) -> dict[str, Any]:
    own_configs()
    module = importlib.import_module(f'configs.{file}')
    return module.get_config(*[argument] * bool(argument)).to_dict()
