"""The published DP-Kernel step betrays a record, whatever its noise; certified it does not."""

import numpy as np
import pytest

from dpaf_jax.audit.bounds import epsilon_lower_bound
from experiments.leaks import dp_kernel
from experiments.leaks.outcome import GUARANTEES


@pytest.mark.slow
@pytest.mark.parametrize('guarantee', GUARANTEES)
def test_the_steps_direction_betrays_the_record_where_published(guarantee):
    game = dp_kernel.step_game(guarantee, 1.0)
    in_, out = (game.play(100, is_in, 1) for is_in in (True, False))
    scores = [game.score(seen, out, in_) for seen in (in_, out)]
    bound = epsilon_lower_bound(*scores, 1e-3, 1e-5)
    if guarantee == 'as_published':
        # Apart by orders of magnitude: rounding on one side, the record on the other.
        assert np.median(scores[0]) > 100 * np.median(scores[1])
        assert bound > game.epsilon
    else:
        fresh = [game.score(game.play(100, i, 2), out, in_) for i in (True, False)]
        assert epsilon_lower_bound(*fresh, 1e-3, 1e-5) < 1.0
