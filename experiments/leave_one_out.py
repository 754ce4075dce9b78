"""How far one record moves phase 1's pre-noise sum, step by step, in units of its bound.

Adaptive composition grants that at each step the sum is a function of the data, of what
was released before, and of fresh coins. So both data sets are given the same released
iterates of all that noise covers, samples and noise, and only what is *not* released may
differ: as published, each has its own head, trained along those iterates. The claim is
that the sums differ by at most the sensitivity where the record is in the sample, and not
at all where it is not.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from dpaf_jax.data import Dataset
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.sampling import Draw, poisson_draw, shuffled_batches
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.input_pipeline import gather, records


@dataclasses.dataclass(frozen=True)
class Ratios:
    """Changes of the pre-noise sum over the claimed bound.

    Attributes:
        ratio: [records, steps]; the claim is at most 1.
        is_drawn: [records, steps], whether the record is in the sample; the claim for a
            step where it is not is 0.
    """

    ratio: np.ndarray
    is_drawn: np.ndarray


def leave_one_out(
    classifier: Classifier,
    data: Dataset,
    records: np.ndarray,
    steps: int,
    keys: RunKeys,
) -> Ratios:
    """Trains on the data, and beside it once without each record.

    Args:
        classifier: as published or certified.
        data: its training images.
        records: [R] indices; each is left out (emptied) in turn.
        steps: how many of phase 1 to take.
        keys: of samples and noise.

    Returns:
        The measurement.
    """
    replay = _Replay(classifier)
    start = jax.device_get(classifier.init(jax.random.key(0)))
    whole, without = start, [start for _ in records]
    ratio, is_drawn = np.zeros((2, len(records), steps))
    for t in range(steps):
        draw, key = _draw(classifier, keys, t), keys.noise('conv1', t)
        released = {part: whole.params[part] for part in classifier.trained}
        summed = replay.query(whole.params, _units(data, draw))
        for i, record in enumerate(records):
            other = without[i]._replace(params={**without[i].params, **released})
            kept = _units(data, draw, left_out=int(record))
            apart = replay.query(other.params, kept) - summed
            ratio[i, t] = np.linalg.norm(apart) / classifier.mechanism.l2_sensitivity
            is_drawn[i, t] = np.any(kept.is_padding_example != draw.is_padding_example)
            without[i] = replay.step(other, kept, key)
        whole = replay.step(whole, _units(data, draw), key)
    return Ratios(ratio, is_drawn.astype(bool))


class _Replay:
    """Compiled query and step on one device."""

    def __init__(self, classifier: Classifier):
        self._classifier = classifier

    @functools.cached_property
    def _query(self) -> Callable[..., Any]:
        return _on_one_device(self._classifier.query)

    @functools.cached_property
    def _step(self) -> Callable[..., Any]:
        return _on_one_device(self._classifier.step)

    def query(self, params: Any, batch: ClipBatch) -> np.ndarray:
        """The pre-noise sum by conv1 (and whatever else is trained), exact: float64."""
        summed = self._query(params, batch)
        if isinstance(summed, ExactSum):
            units_of_grid = ravel_pytree(summed.units())[0]
            return np.asarray(units_of_grid, float) * summed.spacing
        return np.asarray(ravel_pytree(summed)[0], float)

    def step(self, state: Any, batch: ClipBatch, key: np.ndarray) -> Any:
        """The next state."""
        return self._step(state, batch, key)[0]


def _on_one_device(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled for one device, as a run would be."""
    mapped = parallel.pmapped(fn, jax.local_devices()[:1])

    def call(*args: Any) -> Any:
        made = mapped(*jax.tree.map(lambda leaf: np.asarray(leaf)[None], args))
        return parallel.unreplicate(made)

    return call


def _draw(classifier: Classifier, keys: RunKeys, step: int) -> Draw:
    m, number = classifier.mechanism, classifier.plan.num_examples
    if classifier.config.privacy.as_published:
        return shuffled_batches(number, int(m.expected_batch_size), m.name, keys, step)
    return poisson_draw(m, number, keys, step)


def _units(data: Dataset, draw: Draw, left_out: int = -1) -> ClipBatch:
    empty = draw.is_padding_example | (draw.indices == left_out)
    dealt = {'indices': draw.indices, 'is_padding_example': empty}
    return gather(records(data), dealt)
