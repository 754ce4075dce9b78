"""What `benchmarks.wall_clock` books where; nothing here is timed."""

import importlib

import pytest


@pytest.fixture(scope='module')
def wall_clock():
    """Imported late: its flags are not those of other commands."""
    return importlib.import_module('benchmarks.wall_clock')


def ledger(wall_clock, parts, compiling):
    made = wall_clock.Ledger()
    made.parts = [wall_clock.Part(*part) for part in parts]
    for start, end in compiling:
        made.listen(wall_clock.COMPILING + 'backend_compile_duration', start, end)
    made.listen('/jax/another/event', 0.0, 100.0)
    return made


def test_a_part_that_holds_others_has_what_is_left_of_it(wall_clock):
    parts = [
        ('phase', (2.0, 6.0), 5.0, 10),
        ('train', (1.0, 9.0), 9.0, 0),
        ('report', (9.0, 10.0), 1.0, 0),
    ]
    # Compiled by two threads at once, once in the phase and once after it.
    rows = ledger(wall_clock, parts, [(2, 3), (2.5, 4), (7, 8)]).rows()
    assert rows == [
        {
            'part': 'phase',
            'seconds': 4,
            'cpu': 5,
            'compiling': 2,
            'steps_per_second': 5,
        },
        {'part': 'train', 'seconds': 4, 'cpu': 4, 'compiling': 1},
        {'part': 'report', 'seconds': 1, 'cpu': 1, 'compiling': 0},
    ]


def test_seconds_are_counted_once_and_only_inside(wall_clock):
    spans = [(0, 2), (1, 3), (5, 9), (6, 7)]
    assert wall_clock.covered_seconds(spans, (1, 8)) == 2 + 3
    assert wall_clock.covered_seconds([], (1, 8)) == 0
