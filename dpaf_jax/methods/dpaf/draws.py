"""Which records take part in a step of a mechanism, in either phase."""

import numpy as np

from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.privacy.sampling import Draw, shuffled_batches
from dpaf_jax.training.input_pipeline import poisson_records
from dpaf_jax.training.run import Run


def draw_records(
    run: Run, mechanism: Mechanism, step: int, eligible: np.ndarray | None = None
) -> Draw:
    """The records of a mechanism's step, by private coins of its own.

    Args:
        run: has data, coins and the guarantee; `as_published` shuffles, for which
            nothing is certified.
        mechanism: says how many are expected.
        step: of the mechanism.
        eligible: indices of those whose turn it is; None: every record.
    """
    if run.config.privacy.as_published:
        size = round(mechanism.expected_batch_size)  # B / N * N, in floats
        return shuffled_batches(
            len(run.data.labels), size, mechanism.name, run.keys, step
        )
    return poisson_records(run, mechanism, step, eligible)
