"""Contracts of progress lines, the history file and TensorBoard."""

import functools
import json
import math

import jax.numpy as jnp
import lines
import numpy as np
import pytest
from PIL import Image

from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.history import History
from dpaf_jax.training.progress import Progress, Rows, TensorBoard

watched = functools.partial(lines.watched, Progress)


# --- the line ---------------------------------------------------------------------


def test_line_has_step_rate_time_left_and_epsilon():
    progress, stream, clock = watched(
        total=1000, planned_epsilon=10.0, epsilon_at=lambda step: step / 100
    )
    clock.now = 30.0  # compilation, which the rate must not count
    progress.update(100, {})
    clock.now = 40.0
    progress.update(300, {})
    # 20 steps/s of 24 images; 700 steps are left.
    assert stream.getvalue().splitlines()[-1] == (
        'gan  step 300/1000 · 480 images/s · 35 s left · ε 3 of 10'
    )


def test_rate_follows_the_expected_batch_and_nothing_in_the_metrics():
    lines = []
    for batch in (3.0, 50.0):
        progress, stream, clock = watched()
        progress.update(1, {'loss': batch})
        clock.now = 1.0
        progress.update(11, {'loss': batch})
        lines.append(stream.getvalue())
    assert '240 images/s' in lines[0]
    assert lines[0] == lines[1]


def test_without_a_plan_no_epsilon_is_shown_and_infinity_is_readable():
    progress, stream, _ = watched(planned_epsilon=None, epsilon_at=lambda step: 1.0)
    progress.update(1, {})
    assert 'ε' not in stream.getvalue()
    progress, stream, _ = watched(
        planned_epsilon=math.inf, epsilon_at=lambda s: math.inf
    )
    progress.update(1, {})
    assert 'ε ∞ of ∞' in stream.getvalue()


def test_accounting_is_not_asked_at_every_line():
    asked = []
    progress, _, clock = watched(
        total=10_000,
        planned_epsilon=1.0,
        epsilon_at=lambda step: asked.append(step) or 0.5,
    )
    for step in range(1, 101):
        clock.now = step / 10
        progress.update(step, {})
    assert len(asked) <= 2


# --- metrics ----------------------------------------------------------------------


def test_rows_hold_means_since_the_row_before_and_epsilon(tmp_path):
    history = History(tmp_path)
    progress, _, clock = watched(
        total=400,  # a row every 2 steps
        rows=Rows('gan', 400, history),
        planned_epsilon=10.0,
        epsilon_at=lambda step: step / 10,
    )
    for step, loss in ((1, 1.0), (2, 3.0), (3, 5.0)):
        clock.now = float(step)
        progress.update(step, {'loss_head': jnp.float32(loss)})
    progress.close()
    assert history.rows() == [
        {'phase': 'gan', 'step': 2, 'seconds': 2, 'epsilon_spent': 0.2, 'loss_head': 2},
        {'phase': 'gan', 'step': 3, 'seconds': 3, 'epsilon_spent': 0.3, 'loss_head': 5},
    ]


def test_a_long_phase_leaves_a_bounded_number_of_rows(tmp_path):
    history = History(tmp_path)
    progress, _, _ = watched(total=5000, rows=Rows('gan', 5000, history))
    for step in range(8, 5001, 8):
        progress.update(step, {'loss': 1.0})
    assert 100 <= len(history.rows()) <= 200


def test_a_window_without_a_value_is_skipped_but_not_for_ever(tmp_path):
    history = History(tmp_path)
    progress, _, _ = watched(total=200, rows=Rows('gan', 200, history))
    for step in range(1, 10):
        progress.update(step, {'loss': math.nan if step % 3 else 2.0})
    rows = history.rows()
    assert [row['loss'] for row in rows] == [None, None, 2.0] * 3
    with pytest.raises(FloatingPointError, match='loss'):
        for step in range(10, 150):
            progress.update(step, {'loss': math.nan})


def test_an_infinite_loss_stops_the_run_naming_it():
    progress, _, _ = watched()
    with pytest.raises(FloatingPointError, match='gan step 1: loss_match'):
        progress.update(1, {'loss_match': math.inf, 'loss_head': 1.0})


# --- history ----------------------------------------------------------------------


def fill(history):
    for phase, step in (('classifier', 8), ('classifier', 16), ('gan', 8), ('gan', 16)):
        history.append({'phase': phase, 'step': step, 'seconds': step / 2})


def steps(history):
    return [(row['phase'], row['step']) for row in history.rows()]


def test_appended_rows_come_back_as_strict_json(tmp_path):
    history = History(tmp_path)
    row = {'phase': 'gan', 'step': np.int64(3), 'a': np.float32(0.5), 'b': math.nan}
    history.append(row | {'c': jnp.float32(2)})
    text = (tmp_path / 'history.jsonl').read_text()
    assert 'NaN' not in text
    assert History(tmp_path).rows() == [
        {'phase': 'gan', 'step': 3, 'a': 0.5, 'b': None, 'c': 2.0}
    ]
    assert json.loads(text) == history.rows()[0]


@pytest.mark.parametrize(
    'phase,step,kept',
    [
        ('gan', 16, 4),
        ('gan', 8, 3),
        ('gan', 0, 2),
        ('classifier', 16, 2),
        ('classifier', 12, 1),
        ('classifier', 0, 0),
        ('later', 0, 4),
    ],
)
def test_truncate_forgets_what_a_resumed_run_does_again(tmp_path, phase, step, kept):
    history = History(tmp_path)
    fill(history)
    before = steps(history)
    history.truncate(phase, step)
    assert steps(history) == before[:kept]
    history.append({'phase': phase, 'step': step + 1})
    assert steps(history) == [*before[:kept], (phase, step + 1)]


def test_a_torn_last_line_is_dropped_and_does_not_spoil_the_next(tmp_path):
    history = History(tmp_path)
    fill(history)
    path = tmp_path / 'history.jsonl'
    whole = path.read_bytes()
    for torn in (b'{"phase": "gan", "st', b'{"phase": "gan", "step": 24}', b'\xce'):
        path.write_bytes(whole + torn)
        reopened = History(tmp_path)
        assert len(reopened.rows()) == 4
        reopened.append({'phase': 'gan', 'step': 24})
        assert path.read_bytes().startswith(whole)
        assert steps(reopened)[3:] == [('gan', 16), ('gan', 24)]


@pytest.mark.parametrize('line', [b'no json\n', b'[1]\n', b'{"step": 3}\n', b'\xff\n'])
def test_a_damaged_line_in_the_middle_is_refused_by_number(tmp_path, line):
    path = tmp_path / 'history.jsonl'
    row = b'{"phase": "gan", "step": 1}\n'
    path.write_bytes(row + line + row)
    history = History(tmp_path)
    for touch in (
        history.rows,
        lambda: history.append({}),
        lambda: history.truncate('', 0),
    ):
        with pytest.raises(UserError, match='line 2'):
            touch()
    assert path.read_bytes() == row + line + row


def test_reading_a_history_that_is_not_there_gives_no_rows(tmp_path):
    history = History(tmp_path / 'new')
    history.truncate('gan', 5)
    assert history.rows() == []
    assert not (tmp_path / 'new').exists()


def test_seconds_go_on_after_a_resume(tmp_path):
    history = History(tmp_path)
    fill(history)
    progress, _, clock = watched(rows=Rows('gan', 100, history, start_step=16))
    clock.now = 5.0
    progress.update(100, {'loss': 1.0})
    assert history.rows()[-1]['seconds'] == 8 + 5


# --- TensorBoard ------------------------------------------------------------------


def test_curves_and_pictures_reach_tensorboard(tmp_path):
    board = TensorBoard(tmp_path, 'gan')
    progress, _, _ = watched(total=2, rows=Rows('gan', 2, writer=board))
    progress.update(2, {'loss_head': 0.25, 'loss_match': math.nan})
    board.picture(Image.new('RGBA', (5, 4), (9, 8, 7, 255)), 2)
    board.close()
    (events,) = (tmp_path / 'tensorboard' / 'gan').iterdir()
    content = events.read_bytes()
    assert b'gan/loss_head' in content
    assert b'gan/loss_match' not in content
    assert b'samples' in content and b'PNG' in content


def test_curves_are_made_again_from_the_history(tmp_path):
    """A killed process has left points that the history has taken back."""
    board = TensorBoard(tmp_path, 'gan')
    board.row({'phase': 'gan', 'step': 2, 'seconds': 1.0, 'lost': 0.25})
    board.close()
    (events,) = (tmp_path / 'tensorboard' / 'gan').iterdir()
    events.rename(events.with_name('events.out.tfevents.1.elsewhere'))
    rows = [{'phase': 'gan', 'step': 1, 'seconds': 1.0, 'kept': 1.0, 'none': None}]
    TensorBoard(tmp_path, 'gan', rows).close()
    (events,) = (tmp_path / 'tensorboard' / 'gan').iterdir()
    content = events.read_bytes()
    assert b'gan/kept' in content
    for name in (b'gan/lost', b'gan/none', b'gan/seconds', b'gan/phase'):
        assert name not in content


def test_a_phase_leaves_the_pictures_of_those_before_it(tmp_path):
    rows = [{'phase': 'labeller', 'step': 1, 'seconds': 1.0, 'loss': 1.0}]
    board = TensorBoard(tmp_path, 'labeller')
    board.picture(Image.new('RGBA', (5, 4), (9, 8, 7, 255)), 1)
    board.close()
    TensorBoard(tmp_path, 'gan', rows).close()
    (events,) = (tmp_path / 'tensorboard' / 'labeller').iterdir()
    assert b'PNG' in events.read_bytes()
    (events,) = (tmp_path / 'tensorboard' / 'gan').iterdir()
    assert b'loss' not in events.read_bytes()


def test_rows_that_are_held_wait_for_a_checkpoint(tmp_path):
    history = History(tmp_path)
    rows = Rows('gan', 10, history, are_held=True)
    progress, _, _ = watched(total=10, rows=rows)
    progress.update(1, {'loss': 1.0})
    progress.update(2, {'loss': 2.0})
    assert history.rows() == []
    rows.write()
    assert [row['loss'] for row in history.rows()] == [1.0, 2.0]
    progress.update(10, {'loss': 3.0})
    progress.close()
    assert [row['step'] for row in history.rows()] == [1, 2, 10]
