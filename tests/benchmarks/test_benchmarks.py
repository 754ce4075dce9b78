"""What benchmarks count; nothing here is timed."""

import functools
import importlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from benchmarks import probe
from dpaf_jax.runtime import parallel

pytestmark = pytest.mark.usefixtures('optimised')

SIDE = 64


@functools.cache
def floor():
    """Imported late: its flags are not those of other commands."""
    return importlib.import_module('benchmarks.floor')


class Toy:
    """A window of two programs, the second called twice, and work of the host's own."""

    def __init__(self):
        devices = jax.local_devices()[:1]
        self.multiply = parallel.pmapped(multiply, devices, donate=(0,))
        self.add = parallel.pmapped(functools.partial(add, 1.0), devices)
        self.state, self.steps, self.on_host = jnp.ones((1, SIDE, SIDE)), 2, 0
        self.phase = SimpleNamespace(images=3)

    def __call__(self):
        self.on_host += 1
        self.state = self.add(self.add(self.multiply(self.state)))
        return self.state


def multiply(x):
    return x @ x / SIDE


def add(number, x):
    return x + number


def test_a_windows_calls_are_noted_by_name_and_answered_without_computing():
    with floor().noted() as programs:
        window = Toy()
    window()
    assert not programs.calls
    programs.note(window)
    assert {n: len(c) for n, c in programs.by_name().items()} == {
        'multiply': 1,
        'add': 2,
    }
    result = window.state
    answered = programs.answered(window)
    window.state = None  # no program could take it
    assert answered() is result and window.on_host == 3
    again = programs.calls[-1].again()
    assert jnp.array_equal(again, result)


def test_the_floor_is_of_operations_or_of_bytes_whichever_takes_longer():
    with floor().noted() as programs:
        window = Toy()
    programs.note(window)
    product = programs.by_name()['multiply']
    by_operations = floor().floor_seconds(product, matrix=1.0, copy=1e30)
    by_bytes = floor().floor_seconds(product, matrix=1e30, copy=1.0)
    assert by_operations == pytest.approx(2 * SIDE**3, rel=0.1)
    assert by_bytes >= 2 * 4 * SIDE**2  # read once, written once
    assert floor().floor_seconds(product, 1.0, 1.0) == max(by_operations, by_bytes)


def test_the_sum_over_devices_of_a_tree_is_one_message_of_its_bytes():
    devices = jax.local_devices()[:2]
    with probe.programs() as texts:
        summed = parallel.pmapped(lambda x: parallel.total((x, x[:2])), devices)
        summed(jnp.ones((2, 6)))
    assert [probe.all_reduces(text) for text in texts] == [[4 * (6 + 2)]]


def test_parts_are_per_step_and_name_the_host():
    with floor().noted() as programs:
        window = Toy()
        row = floor().parts(programs, window, rounds=1, rates=(1.0, 1.0))
    assert set(row['parts_ms']) == {'host', 'multiply', 'add'}
    assert set(row['floors_ms']) == {'multiply', 'add'}
    assert row['images_per_second'] == pytest.approx(1e3 * 3 / row['whole_ms'])
