"""DPGEN as published: the classifier that gives samples their labels.

The print says nothing of labels. The authors' notebooks (github.com/chiamuyu/DPGEN) train a
small CNN on the data set itself and let it label what was drawn. So does this phase: plain
training on private images and their labels, which certifies nothing. No certified run has it.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.sampling import shuffled_batches
from dpaf_jax.release.samplers.published_dpgen import Classifier
from dpaf_jax.runtime import parallel
from dpaf_jax.training.input_pipeline import Feed, gather
from dpaf_jax.training.optimizers import TrainState, averaged_step, make_optimizer
from dpaf_jax.training.run import Run

RATE = 1e-3  # of Adam, as in the authors' notebook; here it falls


class LabellerPhase:
    """A step a call, of a batch of `microbatch` private images, without clip or noise.

    It has no curve: its loss is of private images, and nothing noises it.

    Raises:
        ValueError: the run is certified.
    """

    name = 'labeller'

    def __init__(self, run: Run):
        if not run.config.privacy.as_published:
            raise ValueError('a certified run reads no private label without noise')
        dpgen = run.config.dpgen
        self._run = run
        self._classifier = Classifier(run.config.data.num_classes)
        self._size = min(dpgen.microbatch, len(run.data.labels))
        self.total_steps = dpgen.labeller_steps
        self.images = float(self._size)
        self._optimizer = make_optimizer('adam', RATE, self.total_steps)
        self._feed = Feed(run)
        self._compiled = parallel.pmapped(self._step, run.devices, donate=(0,))

    def init(self) -> TrainState:
        return self._run.first_state(self._first, 'init labeller')

    def _first(self, key: jax.Array) -> TrainState:
        image = jnp.zeros((1, *self._run.config.data.shape))
        return TrainState.start(self._classifier.init(key, image), self._optimizer)

    def charged(self, step: int) -> Mapping[str, int]:
        return {m.name: m.steps for m in self._run.plan}

    def picture(self, state: TrainState) -> None:
        return None

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run, there = self._run, len(self._run.data.labels)
        draw = shuffled_batches(there, self._size, self.name, run.keys, step)
        dealt = self._feed.deal_one(draw)
        return self._compiled(state, self._feed.data, dealt), step + 1, {}

    def _step(self, state: TrainState, data: Any, draw: Any) -> TrainState:
        batch = gather(data, draw)
        images, labels = to_float(batch.images[:, 0]), batch.labels[:, 0]

        def mean(params: Any) -> jax.Array:
            logits = self._classifier.apply(params, images)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            there = ~batch.is_padding_example[:, 0]
            return jnp.sum(losses, where=there) / self._size

        # Each device has a share of the batch: their sum is the batch's mean.
        gradient = parallel.total(jax.grad(mean)(state.params))
        decay = self._run.config.dpgen.ema_decay
        return averaged_step(self._optimizer, gradient, state, decay)
