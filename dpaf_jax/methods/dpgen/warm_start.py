"""DPGEN's warm start: plain training on images that nobody is protected in.

Denoising score matching as in phase `score`, without clip, noise or labels, before the
first private image is read. As published it may run on a part of the private ones.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.data import Dataset
from dpaf_jax.methods.dpgen.score_matching import Params, ScoreMatching
from dpaf_jax.networks.score import UNLABELLED
from dpaf_jax.privacy.sampling import shuffled_batches
from dpaf_jax.runtime import parallel
from dpaf_jax.training.input_pipeline import Feed, gather
from dpaf_jax.training.optimizers import TrainState
from dpaf_jax.training.run import Run


def warm_start(run: Run, matching: ScoreMatching) -> Params | None:
    """Parameters to start from; None where the config has no warm start."""
    if not run.config.dpgen.warm_start:
        return None
    images = run.public if run.config.public_data else _private_share(run)
    if images is None:
        raise ValueError('the run has no public images')
    return run.train(WarmStartPhase(run, matching, images)).ema_params


def _private_share(run: Run) -> Dataset:
    """The first of the private images, as published."""
    if run.config.privacy.guarantee == 'certified':
        raise ValueError('a certified run reads no private image without noise')
    share = run.config.dpgen.private_share
    number = max(1, round(share * len(run.data.images)))
    return dataclasses.replace(run.data, images=run.data.images[:number])


class WarmStartPhase:
    """A step a call, of a batch of `microbatch` images.

    Args:
        run: of the private data, which this phase puts aside.
        matching: loss and network.
        data: to train on; labels are not used, since classes may be others.
    """

    name = 'warm_start'

    def __init__(self, run: Run, matching: ScoreMatching, data: Dataset):
        hidden = np.full(len(data.images), UNLABELLED, np.int32)
        data = dataclasses.replace(data, labels=hidden)
        self._run, self._matching = dataclasses.replace(run, data=data), matching
        self._size = min(run.config.dpgen.microbatch, len(hidden))
        self._is_public = run.config.public_data is not None
        self.total_steps = run.config.dpgen.warm_start_steps
        self.images = float(self._size)
        self._feed = Feed(self._run)
        self._compiled = parallel.pmapped(self._step, run.devices, donate=(0,))

    def init(self) -> TrainState:
        return self._run.first_state(self._matching.init, 'init score')

    def charged(self, step: int) -> Mapping[str, int]:
        return {'score': 0}

    def picture(self, state: TrainState) -> None:
        return None

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run, there = self._run, len(self._run.data.labels)
        draw = shuffled_batches(there, self._size, self.name, run.keys, step)
        key = run.on_every_device(run.keys.public('warm shots', step))
        dealt = self._feed.deal_one(draw)
        state, metrics = self._compiled(state, self._feed.data, dealt, key)
        # As published images may be private, and nothing noises their loss.
        return state, step + 1, metrics if self._is_public else {}

    def _step(self, state: TrainState, data: Any, draw: Any, key: Any) -> Any:
        shots = self._matching.shots(gather(data, draw), key)

        def mean(params: Params) -> jax.Array:
            losses = self._matching.loss(params, shots)
            return jnp.sum(losses, where=~shots.is_padding_example) / self._size

        # Each device has a share of the batch: their sum is the batch's mean.
        loss, gradient = parallel.total(jax.value_and_grad(mean)(state.params))
        state = self._matching.descend(state, gradient, self.total_steps)
        return state, {'loss': loss}
