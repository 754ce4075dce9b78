"""G-PATE's teachers: discriminators on disjoint parts of the data, trained side by side.

Nothing here is private, and nothing of it leaves but votes (privacy/voting.py): the
teachers remember their records, and their state is kept from step to step. That is sound
because a record reaches one teacher alone. Which one is a function of the record's index,
and its turn within the part is a function of the index and the step: neither is moved by
what other records hold or by which of them are empty.
"""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpaf_jax.config import Config
from dpaf_jax.networks.architecture import SLOPE
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.privacy.voting import discretise
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import descend, make_optimizer

State = tuple[Any, optax.OptState]  # of one teacher, or of all with an axis in front


def cell(config: Config) -> int:
    """Side in pixels of what is seen as one; the columns of a table have no neighbours."""
    return 1 if config.data.columns else config.g_pate.cell


def coarse_shape(config: Config) -> tuple[int, int, int]:
    """[h, w, C] of an image with one place for each cell of pixels."""
    (height, width, channels), side = config.data.shape, cell(config)
    return -(-height // side), -(-width // side), channels


def num_directions(config: Config) -> int:
    """Of a fake, each of which the teachers vote on: random ones, or its own coordinates."""
    return config.g_pate.projections or math.prod(coarse_shape(config))


class Teacher(nn.Module):
    """Fully connected layers with one answer for each class, picked by the label.

    Matrix products alone: hundreds of small convolutions with kernels of their own are
    what XLA does worst. It sees means over cells, since a generator that is smooth over them
    has no more: by finer detail any fake could be told, and no direction that is asked for
    leads there.

    Attributes:
        widths: units of the hidden layers.
        num_classes: K.
        cell: side of a cell in pixels; 1: each pixel is seen.
    """

    widths: tuple[int, ...]
    num_classes: int
    cell: int = 1

    @nn.compact
    def __call__(self, images: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, H, W, C] images and [B] labels to [B] logits: above 0 for real."""
        if self.cell > 1:
            side = (self.cell, self.cell)
            images = nn.avg_pool(images, side, side, 'SAME', count_include_pad=False)
        hidden = images.reshape(len(images), -1)
        for width in self.widths:
            hidden = nn.leaky_relu(nn.Dense(width)(hidden), SLOPE)
        answers = nn.Dense(self.num_classes)(hidden)
        return jnp.sum(answers * jax.nn.one_hot(labels, self.num_classes), axis=1)


@dataclasses.dataclass(frozen=True)
class Parts:
    """Who teaches whom: a public function of indices, which are secret.

    Attributes:
        slots: [n, M] int64 places of a part's records in the data arrays; -1 for none.
    """

    slots: np.ndarray

    @classmethod
    def of(cls, index: np.ndarray, num_records: int, teachers: int) -> 'Parts':
        """Record i belongs to teacher i mod n, in slot i // n.

        Args:
            index: [p] the records' places among all, empty ones counted.
            num_records: how many there are, empty ones counted.
            teachers: n.
        """
        slots = np.full((teachers, -(-num_records // teachers)), -1, np.int64)
        slots[index % teachers, index // teachers] = np.arange(len(index))
        return cls(slots)

    def batch(self, step: int, size: int) -> Draw:
        """Every teacher's records of a step, in turn: [n, min(size, M)]."""
        width = self.slots.shape[1]
        size = min(size, width)
        turn = self.slots[:, (step * size + np.arange(size)) % width]
        return Draw(np.maximum(turn, 0).astype(np.int32), turn < 0)


@dataclasses.dataclass(frozen=True)
class Teachers:
    """The static part; its methods are pure functions of one teacher's arrays."""

    config: Config

    @property
    def network(self) -> Teacher:
        """Of each of them."""
        widths = self.config.g_pate.width, self.config.g_pate.fc_width
        return Teacher(widths, self.config.data.num_classes, cell(self.config))

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam with beta1 = 0.5."""
        return make_optimizer('adam', self.config.g_pate.teacher_learning_rate)

    def init(self, key: jax.Array) -> State:
        """One teacher's: public coins."""
        data = self.config.data
        image = jnp.zeros((1, *data.shape))
        params = self.network.init(key, image, jnp.zeros(1, jnp.int32))
        return params, self.optimizer.init(params)

    def num_bytes(self) -> int:
        """What all teachers need in float32, about.

        Parameters, gradients and Adam's two moments; records and the fakes' gradients
        as pixels.
        """
        shapes, _ = jax.eval_shape(self.init, jax.random.key(0))
        number = 4 * sum(leaf.size for leaf in jax.tree.leaves(shapes))
        data, g_pate = self.config.data, self.config.g_pate
        pixels = math.prod(data.shape)
        number += pixels * (g_pate.batch_size + 2 * g_pate.fakes)
        return 4 * number * g_pate.teachers

    def loss_on_fakes(
        self, params: Any, fakes: jax.Array, labels: jax.Array
    ) -> jax.Array:
        """[m]: BCE of each fake against 0, the part of L_D that a fake enters."""
        logits = self.network.apply(params, fakes, labels)
        return optax.sigmoid_binary_cross_entropy(logits, jnp.zeros_like(logits))

    def learn(
        self, state: State, mine: ClipBatch, fakes: jax.Array, labels: jax.Array
    ) -> State:
        """One step of one teacher: its records against 1, the fakes against 0.

        Args:
            state: of the teacher.
            mine: [M, ...] records of its part; padding where they are empty.
            fakes: [m, H, W, C], the same for all teachers.
            labels: [m] of the fakes.
        """
        reals, is_padding = to_float(mine.images), mine.is_padding_example

        def loss(params: Any) -> jax.Array:
            logits = self.network.apply(params, reals, mine.labels)
            each = optax.sigmoid_binary_cross_entropy(logits, jnp.ones_like(logits))
            present = jnp.maximum(jnp.sum(~is_padding), 1)
            on_reals = jnp.sum(jnp.where(is_padding, 0.0, each)) / present
            return on_reals + jnp.mean(self.loss_on_fakes(params, fakes, labels))

        params, opt_state = state
        return descend(self.optimizer, jax.grad(loss)(params), params, opt_state)

    def uphill(self, params: Any, fakes: jax.Array, labels: jax.Array) -> jax.Array:
        """[m, H, W, C]: the direction in which each fake would pass for real."""

        def total(images: jax.Array) -> jax.Array:
            return jnp.sum(self.loss_on_fakes(params, images, labels))

        return jax.grad(total)(fakes)

    def vote(
        self,
        params: Any,
        fakes: jax.Array,
        labels: jax.Array,
        projections: jax.Array,
    ) -> jax.Array:
        """Which way each fake should go: algorithm 2, lines 4-8, of one teacher.

        Args:
            params: of the teacher.
            fakes: [m, H, W, C].
            labels: [m].
            projections: [m, H * W * C, k], one for each fake.

        Returns:
            [m, k] int32 bins.
        """
        uphill = self.uphill(params, fakes, labels).reshape(len(fakes), -1)
        projected = jnp.einsum('md,mdk->mk', uphill, projections)
        g_pate = self.config.g_pate
        return discretise(projected, g_pate.clip, g_pate.bins)
