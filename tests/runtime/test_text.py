"""Numbers and times as people read them."""

import math

import pytest

from dpaf_jax.runtime.text import between, duration, factor, number


@pytest.mark.parametrize(
    'seconds,text',
    [
        (0.4, '0 s'),
        (59.4, '59 s'),
        (59.6, '1 min 00 s'),
        (250, '4 min 10 s'),
        (3600, '1 h 00 min'),
        (7500, '2 h 05 min'),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ('low', 'high', 'text'),
    [
        (800, 3200, '13 to 54 min'),
        (9.6, 38.4, '9 to 39 s'),
        (40, 160, '1 to 3 min'),
        (2700, 10800, '1 to 3 h'),
        (10800, 43201, '3 to 13 h'),
    ],
)
def test_rough_times_have_one_unit_and_are_never_narrower(low, high, text):
    assert between(low, high) == text


@pytest.mark.parametrize(
    ('value', 'text'),
    [
        (2.3149, '2.31'),
        (10.0, '10'),
        (0.00123, '0.00123'),
        (1234.5, '1234'),
        (10000.0, '10000'),
        (2.5e7, '2.5e+07'),
        (math.inf, '∞'),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_a_factor_is_never_below_what_it_bounds():
    for epsilon in (1e-4, 0.1, 0.7, 1.0, 2.3, 3.0, 5.0, 10.0, 22.0, 30.0):
        told = float(factor(epsilon).replace(' ', ''))
        assert math.exp(epsilon) <= told <= 1.11 * math.exp(epsilon)
    assert (factor(1.0), factor(10.0), factor(50.0)) == ('2.8', '23 000', 'e^50')
