"""Contracts of the line that tells how far something is."""

import functools
import io

import lines
import pytest

from dpaf_jax.runtime.progress import ProgressLine, Teller


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


watched = functools.partial(lines.watched, ProgressLine)


def test_time_left_goes_by_images_where_steps_differ():
    line, stream, clock = watched(
        total=1000, examples=lambda step: min(step, 500) + 3 * max(0, step - 500)
    )
    line.update(0)
    clock.now = 10.0
    line.update(400)
    # 40 images/s; 100 and 1500 images are left.
    assert stream.getvalue().splitlines()[-1] == (
        'gan  step 400/1000 · 40 images/s · 40 s left'
    )


def test_log_gets_whole_lines_not_more_often_than_asked():
    line, stream, clock = watched(every=10.0)
    for step in range(1, 60):
        clock.now = float(step)
        line.update(step)
    assert [shown.split()[2] for shown in stream.getvalue().splitlines()] == [
        f'{step}/100' for step in (10, 20, 30, 40, 50)
    ]
    assert '\r' not in stream.getvalue()


def test_terminal_line_is_rewritten_and_wiped():
    line, stream, clock = watched(stream=Terminal())
    line.update(10)
    clock.now = 5.0
    line.update(20)
    line.update(100)
    line.close()
    text = stream.getvalue()
    assert text.count('\n') == 1 and text.endswith('\r\n')
    shown = text.removesuffix('\r\n').split('\r')
    assert len(shown) == 3
    assert len(shown[2]) >= len(shown[1].rstrip())  # covers what stood there


def test_the_last_step_is_always_shown():
    line, stream, _ = watched(every=1e9)
    line.update(99)
    assert stream.getvalue() == ''
    line.update(100)
    assert 'step 100/100' in stream.getvalue()


def test_a_line_on_a_terminal_that_has_closed_is_no_error():
    class Closed(io.StringIO):
        def isatty(self):
            return True

        def flush(self):
            raise OSError(5, 'Input/output error')

    line = ProgressLine('gan', 2, 1.0, stream=Closed())
    line.update(2)
    line.close()


def test_what_is_counted_has_its_name_and_may_have_no_rate():
    line, stream, clock = watched(examples=0, unit='model', note=lambda: 'of thirteen')
    line.update(10)
    clock.now = 5.0
    line.update(20)
    assert stream.getvalue().splitlines()[-1] == (
        'gan  model 20/100 · 40 s left · of thirteen'
    )


def test_a_teller_says_lines_and_ends_what_it_is_asked_to():
    class Stopped(Exception):
        pass

    def stop():
        if steps:
            raise Stopped
        steps.append(1)

    said, steps, stream = [], [], Terminal()
    teller = Teller(said.append, stream, 'rows', stop)
    teller.say('training')
    with (
        pytest.raises(Stopped),
        teller.progress('classifiers', 1, 2.0, 'step') as on_progress,
    ):
        on_progress(1)
        on_progress(2)
    assert said == ['training']
    assert stream.getvalue().startswith('classifiers  step 1/1 · done in')
    assert stream.getvalue().endswith('\n')  # also where it was ended
