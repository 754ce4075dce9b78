"""The published critic step betrays a record, whatever its noise; certified it does not."""

import numpy as np
import pytest

from dpaf_jax.audit.bounds import epsilon_lower_bound
from experiments.leaks import dpba
from experiments.leaks.outcome import GUARANTEES


@pytest.mark.slow
@pytest.mark.parametrize('guarantee', GUARANTEES)
def test_the_updates_direction_betrays_the_record_where_published(guarantee):
    game = dpba.direction(guarantee, 1.0)
    in_, out = (game.play(100, is_in, 1) for is_in in (True, False))
    scores = [game.score(seen, in_, out) for seen in (in_, out)]
    bound = epsilon_lower_bound(*scores, 1e-3, 1e-5)
    if guarantee == 'as_published':
        # Apart by orders of magnitude: rounding on one side, the record on the other.
        assert scores[0].min() > 100 * scores[1].max()
        assert bound > game.epsilon == 1.0
    else:
        assert bound < 1.0 and np.std(scores[1]) > np.mean(scores[0])
