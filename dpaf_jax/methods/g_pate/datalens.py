"""DataLens: teachers sign the few coordinates that matter most (Wang et al. 2021).

"DataLens: Scalable Privacy Preserving Training via Gradient Compression and Aggregation"
(CCS 2021), Algorithm 1 with TOPAGG. Teachers and student are G-PATE's (student.py). What
leaves a teacher is another thing: for each fake the signs of the k largest entries of the
direction in which it would pass for real. Their sum over all teachers gets noise, and the
fake moves where enough of them agree.

Guarantee: a teacher's answer for a fake is a vector of k entries -1 or 1 and zeros else, of
norm sqrt(k), whatever its state. One record has one teacher, and may turn each of its answers
into any other: a sum moves by at most 2 sqrt(k). All `steps * fakes` sums are charged in full.
Sums are of whole numbers, on a grid, exact.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.methods.g_pate.phase import train_student
from dpaf_jax.methods.g_pate.plan import answers_plan, check, refuse_agreement
from dpaf_jax.methods.g_pate.student import Fakes, GPate
from dpaf_jax.methods.g_pate.teachers import coarse_shape
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.run import Run

SIGNS = 'signs'


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: every sum charged; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit N, the images, or the budget.
    """
    check(config, num_examples)
    refuse_agreement(config)
    g_pate, top_k = config.g_pate, config.datalens.top_k
    if top_k > (there := math.prod(coarse_shape(config))):
        problem = f'is {top_k}, of {there} places (config.g_pate.cell)'
        raise UserError('config.datalens.top_k', problem, 'Lower it')
    return answers_plan(
        config,
        num_examples,
        name=SIGNS,
        kind='signs of teachers on disjoint parts: one sum per fake',
        l2_sensitivity=2 * math.sqrt(top_k),
        steps=g_pate.steps * g_pate.fakes,
    )


def train(run: Run) -> Any:
    """Trains teachers and student; returns the average of the student's parameters."""
    return train_student(run, DataLens(run.config, run.plan))


def top_signs(values: jax.Array, k: int) -> jax.Array:
    """The signs of the k entries of the largest magnitude in each row; elsewhere 0.

    Args:
        values: [m, d] float32, whatever it holds; NaN has the sign 1.
        k: at most d.

    Returns:
        [m, d] float32 of exactly k entries that are not 0.

    Example:
        >>> top_signs(jnp.array([[0.1, -3.0, 0.5, 2.0]]), 2)
        Array([[ 0., -1.,  0.,  1.]], dtype=float32)
    """
    _, largest = jax.lax.top_k(jnp.abs(values), k)
    signs = jnp.where(values < 0, -1.0, 1.0)
    rows = jnp.arange(len(values))[:, None]
    return jnp.zeros_like(values).at[rows, largest].set(signs[rows, largest])


@dataclasses.dataclass(frozen=True)
class DataLens(GPate):
    """The static part, where it is not G-PATE's."""

    name = SIGNS

    @property
    def queries(self) -> int:
        """Of a step: one for each fake."""
        return self.config.g_pate.fakes

    def questions(self, key: jax.Array, images: jax.Array) -> None:
        """None: teachers answer place by place."""

    def answer(self, params: Any, fakes: Fakes) -> jax.Array:
        """[m, h * w * C] float32 signs of one teacher."""
        uphill = self.teachers.uphill(params, fakes.images, fakes.labels)
        shape = (len(uphill), *coarse_shape(self.config))
        small = jax.image.resize(uphill, shape, 'linear')  # means around each cell
        return top_signs(small.reshape(len(small), -1), self.config.datalens.top_k)

    def release(self, signs: jax.Array, key_data: jax.Array) -> jax.Array:
        """[m, h * w * C] the step's sums over all devices, noised once."""
        return voting.noisy_sum(signs, key_data, self.mechanism.noise_std)

    def moves(self, fakes: Fakes, released: Any) -> tuple[jax.Array, jax.Array]:
        """Where enough teachers agree, one step their way: post-processing.

        Returns:
            ([m, H, W, C] moves, [m, h * w * C] bool: whether they agree).
        """
        datalens = self.config.datalens
        agree = jnp.abs(released) >= datalens.threshold * self.config.g_pate.teachers
        signs = jnp.where(agree, jnp.sign(released), 0.0)
        coarse = signs.reshape(len(signs), *coarse_shape(self.config))
        whole = jax.image.resize(coarse, fakes.images.shape, 'bilinear')
        return datalens.step_size * whole, agree
