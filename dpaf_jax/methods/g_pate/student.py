"""G-PATE: a student generator taught by the votes of many discriminators (Long et al. 2021).

"G-PATE: Scalable Differentially Private Data Generator via Private Aggregation of Teacher
Discriminators", algorithms 1 and 2. Teachers learn, without noise, to tell records of their
own part from the student's fakes. For each fake every teacher knows the direction in which
it would pass for real; random projections reduce it to a few numbers, each teacher votes
for the bin of each number, and Confident-GNMax makes the votes private. The student learns
to output the fakes moved in the winning directions.

What is certified. All that leaves the teachers are votes, and one record has one teacher.
So `privacy/voting.py` bounds what the record moves at every query, whatever its teacher
does: also a teacher that remembers, which is what a discriminator trained over many steps
is. A hidden state is a trap where another record's state could break a query's bound, or
where amplification is claimed; here is neither: the bound is one vote, and every query of
the run is charged in full, `steps * fakes * projections` of them, those that fail the
threshold too.

`as_published` runs the same and is certified too. The paper's own epsilon depends on how
strongly the private votes agree, so it is private itself: `agreement` writes it, if asked,
under `nonprivate/` and nowhere else.
"""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.methods.g_pate.plan import VOTES, noise_ratio
from dpaf_jax.methods.g_pate.teachers import (
    State,
    Teachers,
    coarse_shape,
    num_directions,
)
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.grid import Grid
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.latent import LatentSampler
from dpaf_jax.release.samplers.smooth import g_pate_sampler
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.parallel import Split
from dpaf_jax.training.batch import ClipBatch, prior_labels
from dpaf_jax.training.optimizers import TrainState, averaged_step, make_optimizer
from dpaf_jax.training.phase import Metrics

EXACT = 'nonprivate_votes', 'nonprivate_passed'  # go nowhere but to that folder


class GPateState(NamedTuple):
    """What persists between steps.

    Attributes:
        teachers: `Split` (parameters, optimiser's state) of all. Nothing noises them: they
            stay in the run's folder.
        generator: parameters, their moving average, and what else its steps need; like the
            student a function of released votes.
        student: PATE-GAN's student discriminator; None where the generator is the student.
    """

    teachers: Split
    generator: TrainState
    student: Any = None


class Fakes(NamedTuple):
    """The fakes of a step, which all teachers see.

    Attributes:
        z: [m, z_dim].
        labels: [m] int32 from the public prior.
        images: [m, H, W, C] by the generator.
        questions: what teachers answer, beside the images: [m, H * W * C, k] projections
            from N(0, 1 / k), drawn anew each step. PATE-GAN's are images; DataLens, whose
            teachers answer place by place, has None.
    """

    z: jax.Array
    labels: jax.Array
    images: jax.Array
    questions: Any


@dataclasses.dataclass(frozen=True)
class GPate:
    """The static part; its methods are pure functions of arrays.

    Attributes:
        name: of the mechanism.
    """

    config: Config
    plan: PrivacyPlan

    name: ClassVar[str] = VOTES

    @property
    def mechanism(self) -> Mechanism:
        """The votes."""
        return self.plan[self.name]

    @property
    def queries(self) -> int:
        """Of a step: one for each fake and direction."""
        return self.config.g_pate.fakes * num_directions(self.config)

    @property
    def grid(self) -> Grid | None:
        """On which a vote is a whole number of units; fits both noises of a query."""
        ratio, noise_std = noise_ratio(self.config), self.mechanism.noise_std
        if not noise_std:
            return None
        largest = max(1.0, ratio if ratio < math.inf else 1.0)
        return Grid.of(1.0, noise_std * largest)

    @property
    def threshold(self) -> float:
        """Votes that the highest bin must have, where there is a check."""
        return self.config.g_pate.threshold * self.config.g_pate.teachers

    @property
    def teachers(self) -> Teachers:
        """Their side."""
        return Teachers(self.config)

    @property
    def sampler(self) -> LatentSampler:
        """The generator, as a release has it."""
        return g_pate_sampler(self.config)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The generator's Adam."""
        g_pate = self.config.g_pate
        return make_optimizer('adam', g_pate.generator_learning_rate, g_pate.steps)

    def init(self, key: jax.Array) -> GPateState:
        """Random parameters: public coins."""
        key_student, key_teachers = jax.random.split(key)
        keys = jax.random.split(key_teachers, self.config.g_pate.teachers)
        generator = self.sampler.init(key_student)
        return GPateState(
            teachers=Split(jax.vmap(self.teachers.init)(keys)),
            generator=TrainState.start(generator, self.optimizer),
        )

    def fakes(self, generator: Any, key: jax.Array) -> Fakes:
        """Public coins, and what the generator makes of them; equal on all devices."""
        g_pate, data = self.config.g_pate, self.config.data
        key_z, key_labels, key_questions = jax.random.split(key, 3)
        z = jax.random.normal(key_z, (g_pate.fakes, self.sampler.z_dim))
        labels = prior_labels(data.prior, key_labels, len(z))
        images = self.sampler.generator.apply(generator, z, labels)
        return Fakes(z, labels, images, self.questions(key_questions, images))

    def questions(self, key: jax.Array, images: jax.Array) -> Any:
        """Directions of the step's fakes, smooth over cells: random ones, or each cell's."""
        places, k = coarse_shape(self.config), num_directions(self.config)
        if self.config.g_pate.projections:
            coarse = jax.random.normal(key, (len(images), *places, k)) / math.sqrt(k)
        else:
            each = jnp.eye(k).reshape(*places, k)
            coarse = jnp.broadcast_to(each, (len(images), *each.shape))
        directions = jax.image.resize(coarse, (*images.shape, k), 'bilinear')
        return directions.reshape(len(images), -1, k)

    def query(
        self, teachers: State, parts: ClipBatch, fakes: Fakes
    ) -> tuple[State, jax.Array]:
        """The private computation: this device's teachers learn, and answer.

        Args:
            teachers: of this device, [n / D, ...].
            parts: a unit [M, ...] of records for each of them.
            fakes: of the step.

        Returns:
            (teachers, [n / D, ...] answers of each).
        """
        parts, side = parts.without_padding(), self.teachers

        def one(state: State, mine: ClipBatch) -> tuple[State, jax.Array]:
            for _ in range(self.config.g_pate.teacher_steps):
                state = side.learn(state, mine, fakes.images, fakes.labels)
            return state, self.answer(state[0], fakes)

        return jax.vmap(one)(teachers, parts)

    def answer(self, params: Any, fakes: Fakes) -> jax.Array:
        """[m, k] int32 votes of one teacher, a function of its parameters alone."""
        args = fakes.images, fakes.labels, fakes.questions
        return self.teachers.vote(params, *args)

    def release(self, votes: jax.Array, key_data: jax.Array) -> Any:
        """The step's queries: counted over all devices, noised once."""
        g_pate = self.config.g_pate
        counted = voting.count(votes, g_pate.bins, self.grid)
        ratio = noise_ratio(self.config)
        return voting.release(counted, key_data, self.mechanism.noise_std, ratio)

    def moves(self, fakes: Fakes, released: Any) -> tuple[jax.Array, jax.Array]:
        """How each fake should change: post-processing.

        Directions are in units of the clip: Adam does not see the scale of a loss, unless
        it is as small as its epsilon.

        Returns:
            ([m, H, W, C] moves, [m, k] bool: which queries passed).
        """
        values, passed = voting.confident_gnmax(released, self.threshold)
        moves = jnp.einsum('mk,mdk->md', values, fakes.questions)
        return moves.reshape(fakes.images.shape), passed

    def learn(
        self, state: GPateState, fakes: Fakes, released: Any
    ) -> tuple[GPateState, Metrics]:
        """The student's step towards the moved fakes: post-processing."""
        moves, passed = self.moves(fakes, released)
        # A goal that no image can reach would end in black, from where nothing learns.
        goal = jnp.clip(fakes.images + moves, -1, 1)

        def loss(generator: Any) -> jax.Array:
            images = self.sampler.generator.apply(generator, fakes.z, fakes.labels)
            return jnp.mean(jnp.sum(jnp.square(images - goal), axis=(1, 2, 3)))

        gradient = jax.grad(loss)(state.generator.params)
        metrics = {
            'queries_passed': jnp.mean(passed.astype(jnp.float32)),
            'student_gradient_norm': optax.tree.norm(gradient),
        }
        return self.descended(state, gradient), metrics

    def descended(self, state: GPateState, gradient: Any) -> GPateState:
        """After the generator's step by a gradient, and that of its average."""
        decay = self.config.g_pate.ema_decay
        stepped = averaged_step(self.optimizer, gradient, state.generator, decay)
        return state._replace(generator=stepped)

    def step(
        self, state: GPateState, parts: ClipBatch, noise_key: jax.Array, key: jax.Array
    ) -> tuple[GPateState, Metrics]:
        """One iteration of algorithm 1.

        Args:
            state: before.
            parts: a unit of records for each of this device's teachers.
            noise_key: [8] uint32 of this step alone.
            key: [4] uint32 of public coins.
        """
        fakes = self.fakes(state.generator.params, public_key(key))
        teachers, votes = self.query(state.teachers.tree, parts, fakes)
        state = state._replace(teachers=Split(teachers))
        released = self.release(votes, noise_key)
        state, metrics = self.learn(state, fakes, released)
        if self.config.g_pate.agreement:  # exact, so NOT private
            counted = voting.count(votes, self.config.g_pate.bins, None)
            _, passed = voting.confident_gnmax(released, self.threshold)
            exact = parallel.total(counted), passed
            metrics |= dict(zip(EXACT, exact, strict=True))
        return state, metrics
