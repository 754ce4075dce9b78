"""Contracts of the report's charts."""

import math
import re
from xml.etree import ElementTree

import pytest

from dpaf_jax.pipeline import charts


def chart(points, **changes):
    labels = {'title': 'loss <1>', 'x_label': 'step', 'y_label': 'loss'}
    return charts.line_chart(points, **{**labels, **changes})


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter('text')]


def curve(svg):
    """The (x, y) in the picture of a chart's one curve."""
    found = re.findall(r'<path d="([^"]+)" style="[^"]*stroke: var\(--series\)', svg)
    (path,) = found
    return [tuple(map(float, p.split()[:2])) for p in re.split('[ML]', path)[1:]]


def test_a_curve_goes_from_corner_to_corner_of_its_axes():
    line = curve(chart([(0.0, 0.0), (5.0, 5.0), (10.0, 10.0)]))
    (left, low), (right, high) = line[0], line[-1]
    assert 0 < left < right < charts.WIDTH and 0 < high < low < charts.HEIGHT
    assert texts(chart([(0.0, 0.0), (10.0, 10.0)])).count('10') == 2


def test_a_picture_is_an_element_of_a_page_in_its_colours():
    svg = chart([(0.0, 1.0), (1.0, 2.0)], reference=1.5)
    assert svg.startswith('<svg') and svg.rstrip().endswith('</svg>')
    root = ElementTree.fromstring(svg)
    assert root.get('role') == 'img'
    assert root.get('aria-label') == root.find('title').text == 'loss <1>'
    colours = set(re.findall(r'(?:fill|stroke): ([^;"]+)', svg))
    ours = {'currentColor', 'var(--series)', 'var(--grid)', 'var(--muted)'}
    assert colours == ours | {'none'}
    assert not re.search(r'\bid=|url\(|href|https?:|<style|<metadata', svg)


def test_the_same_points_give_the_same_picture():
    assert chart([(0.0, 1.0), (1.0, 2.0)]) == chart([(0.0, 1.0), (1.0, 2.0)])


def test_texts_stay_texts_as_they_are():
    svg = chart([(0.0, 1.0), (4e4, 2.0)], x_label='a <b> $x$', y_label=' id="1')
    assert {'a <b> $x$', ' id="1', '20,000'} <= set(texts(svg))


def test_a_reference_is_a_dashed_line_with_its_label():
    svg = chart([(0.0, 1.0), (1.0, 2.0)], reference=9.0, reference_label='planned: 9')
    assert 'planned: 9' in texts(svg)
    assert svg.count('stroke-dasharray') == 1
    assert min(y for _, y in curve(svg)) > charts.HEIGHT / 2  # far below the line


@pytest.mark.parametrize('from_zero', [False, True])
def test_the_vertical_axis_begins_at_0_if_it_must(from_zero):
    svg = chart([(1.0, 7.0), (2.0, 8.0)], from_zero=from_zero)
    assert ('0' in texts(svg)) == from_zero


@pytest.mark.parametrize('value', [0.0, 5.0, -1e-7, 1e12])
def test_a_constant_and_a_single_point_are_drawn_too(value):
    assert len(curve(chart([(1.0, value), (2.0, value)]))) >= 2
    assert 'stroke-linecap: round' in chart([(1.0, value)])


def test_many_points_are_thinned_and_those_that_are_not_finite_left_out():
    points = [(float(i), float(i % 2)) for i in range(10)]
    assert charts.thin(points, 5) == [(i * 2 + 0.5, 0.5) for i in range(5)]
    assert charts.thin(points, 10) == points
    holes = [(0.0, 1.0), (1.0, math.nan), (2.0, math.inf), (3.0, 2.0)]
    assert chart(holes) == chart([holes[0], holes[-1]])


def test_nothing_is_drawn_of_nothing():
    assert chart([]) == chart([(0.0, math.nan)]) == ''
