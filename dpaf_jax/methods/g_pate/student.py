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
is. DESIGN's trap of hidden state needs a query whose bound another record's state could
break, or a claim of amplification; here is neither: the bound is one vote, and every query
of the run is charged in full, `steps * fakes * projections` of them, those that fail the
threshold too.

`as_published` runs the same and is certified too. The paper's own epsilon depends on how
strongly the private votes agree, so it is private itself: `agreement` writes it, if asked,
under `nonprivate/` and nowhere else.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.methods.g_pate.agreement import Agreement
from dpaf_jax.methods.g_pate.teachers import Parts, State, Teachers
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.budgets import make_plan
from dpaf_jax.privacy.grid import Grid
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.latent import LatentSampler
from dpaf_jax.release.samplers.registry import preview
from dpaf_jax.release.samplers.smooth import g_pate_sampler
from dpaf_jax.runtime import parallel, processes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.parallel import Split
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.fakes import prior_labels
from dpaf_jax.training.input_pipeline import Feed, device_memory, gather
from dpaf_jax.training.optimizers import descend, make_optimizer, moving_average
from dpaf_jax.training.phase import repeat
from dpaf_jax.training.run import Run

VOTES = 'votes'
WINDOW = 10  # at most so many steps in one scanned call
EXACT = 'nonprivate_votes', 'nonprivate_passed'  # go nowhere but to that folder
MEMORY_SHARE = 0.8  # of a device's memory, that the teachers may take
Metrics = dict[str, jax.Array]


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: every query charged; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit N, or the budget.
    """
    check(config, num_examples)
    g_pate, ratio = config.g_pate, noise_ratio(config)
    votes = Mechanism(
        name=VOTES,
        kind='votes of teachers on disjoint parts: one histogram per fake and projection'
        + (f', and its highest bin over {ratio:g}' if ratio < math.inf else ''),
        sampling_prob=1.0,
        l2_sensitivity=voting.sensitivity(ratio),
        steps=g_pate.steps * g_pate.fakes * g_pate.projections,
        expected_batch_size=float(num_examples),
        capacity=num_examples,
    )
    only = (VOTES,)
    return make_plan([votes], only, only, config.privacy, num_examples, None)


def check(config: Config, num_examples: int) -> None:
    """Raises UserError where teachers do not fit N, or layers, size and cell each other."""
    if (teachers := config.g_pate.teachers) > num_examples:
        problem = f'is {teachers}, for {num_examples} records'
        raise UserError('config.g_pate.teachers', problem, 'Give each one at least')
    g_pate_sampler(config)


def noise_ratio(config: Config) -> float:
    """Of the threshold check's noise to the bins'; infinity where there is no check."""
    g_pate = config.g_pate
    return g_pate.threshold_noise if g_pate.threshold else math.inf


def train(run: Run) -> Any:
    """Trains teachers and student; returns the average of the student's parameters."""
    return train_student(run, GPate(run.config, run.plan))


def train_student(run: Run, gan: 'GPate') -> Any:
    """Trains teachers and student of one of the ways in which votes leave."""
    _check_devices(gan.teachers, run)
    return run.train(GPatePhase(run, gan)).ema_params


class GPateState(NamedTuple):
    """What persists between steps.

    Attributes:
        teachers: `Split` (parameters, optimiser) of all; not private: they stay in the
            run's folder.
        generator, ema_params: parameters of the student and their moving average; like all
            below functions of released votes.
        optimizer: the student's.
        steps: int32 scalar.
        student: PATE-GAN's student discriminator; None where the generator is the student.
    """

    teachers: Split
    generator: Any
    ema_params: Any
    optimizer: optax.OptState
    steps: jax.Array
    student: Any = None


class Fakes(NamedTuple):
    """The fakes of a step, which all teachers see.

    Attributes:
        z: [m, z_dim].
        labels: [m] int32 from the public prior.
        images: [m, H, W, C] by the student.
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
        """Of a step: one for each fake and projection."""
        return self.config.g_pate.fakes * self.config.g_pate.projections

    @property
    def grid(self) -> Grid | None:
        """On which a vote is a whole number of units; fits both noises of a query."""
        ratio, noise_std = noise_ratio(self.config), self.mechanism.noise_std
        if not noise_std:
            return None
        return Grid.of(1.0, noise_std * (ratio if ratio < math.inf else 1.0))

    @property
    def threshold(self) -> float:
        """Votes that the highest bin must have, where there is a check."""
        return self.config.g_pate.threshold * self.config.g_pate.teachers

    @property
    def teachers(self) -> Teachers:
        """Their side."""
        return Teachers(self.config)

    @property
    def student(self) -> LatentSampler:
        """The generator."""
        return g_pate_sampler(self.config)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The student's Adam."""
        g_pate = self.config.g_pate
        return make_optimizer('adam', g_pate.generator_learning_rate, g_pate.steps)

    def init(self, key: jax.Array) -> GPateState:
        """Random parameters: public coins."""
        key_student, key_teachers = jax.random.split(key)
        keys = jax.random.split(key_teachers, self.config.g_pate.teachers)
        generator = self.student.init(key_student)
        return GPateState(
            teachers=Split(jax.vmap(self.teachers.init)(keys)),
            generator=generator,
            ema_params=generator,
            optimizer=self.optimizer.init(generator),
            steps=jnp.int32(0),
        )

    def fakes(self, generator: Any, key: jax.Array) -> Fakes:
        """Public coins, and what the student makes of them; equal on all devices."""
        g_pate, data = self.config.g_pate, self.config.data
        key_z, key_labels, key_questions = jax.random.split(key, 3)
        z = jax.random.normal(key_z, (g_pate.fakes, self.student.z_dim))
        labels = prior_labels(data.prior, key_labels, len(z))
        images = self.student.generator.apply(generator, z, labels)
        return Fakes(z, labels, images, self.questions(key_questions, images))

    def questions(self, key: jax.Array, images: jax.Array) -> Any:
        """Random directions of the step's fakes, smooth over cells."""
        g_pate, data = self.config.g_pate, self.config.data
        # The columns of a table have no neighbours to be smooth with.
        cell = 1 if data.columns else g_pate.cell
        height, width, channels = data.shape
        coarse_sides = -(-height // cell), -(-width // cell)
        shape = (g_pate.fakes, *coarse_sides, channels, g_pate.projections)
        coarse = jax.random.normal(key, shape)
        whole = (*images.shape, g_pate.projections)
        projections = jax.image.resize(coarse, whole, 'bilinear')
        projections /= math.sqrt(g_pate.projections)
        return projections.reshape(g_pate.fakes, -1, g_pate.projections)

    def query(
        self, teachers: State, parts: ClipBatch, fakes: Fakes
    ) -> tuple[State, jax.Array]:
        """The private computation: this device's teachers learn, and vote.

        Args:
            teachers: of this device, [n / D, ...].
            parts: a unit [M, ...] of records for each of them.
            fakes: of the step.

        Returns:
            (teachers, [n / D, m, k] int32 votes).
        """

        def vote(params: Any) -> jax.Array:
            args = fakes.images, fakes.labels, fakes.questions
            return self.teachers.vote(params, *args)

        return self.taught(teachers, parts, fakes, vote)

    def taught(
        self,
        teachers: State,
        parts: ClipBatch,
        fakes: Fakes,
        answer: Callable[[Any], jax.Array],
    ) -> tuple[State, jax.Array]:
        """Each teacher after its steps, and its answer, of its parameters alone."""
        parts, side = parts.without_padding(), self.teachers

        def one(state: State, mine: ClipBatch) -> tuple[State, jax.Array]:
            for _ in range(self.config.g_pate.teacher_steps):
                state = side.learn(state, mine, fakes.images, fakes.labels)
            return state, answer(state[0])

        made: tuple[State, jax.Array] = jax.vmap(one)(teachers, parts)
        return made

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
            images = self.student.generator.apply(generator, fakes.z, fakes.labels)
            return jnp.mean(jnp.sum(jnp.square(images - goal), axis=(1, 2, 3)))

        gradient = jax.grad(loss)(state.generator)
        metrics = {
            'queries_passed': jnp.mean(passed.astype(jnp.float32)),
            'student_gradient_norm': optax.tree.norm(gradient),
        }
        return self.descended(state, gradient), metrics

    def descended(self, state: GPateState, gradient: Any) -> GPateState:
        """After the generator's step by a gradient, and that of its average."""
        generator, optimizer = descend(
            self.optimizer, gradient, state.generator, state.optimizer
        )
        steps = state.steps + 1
        decay = self.config.g_pate.ema_decay
        average = moving_average(state.ema_params, generator, steps, decay)
        return state._replace(
            generator=generator, ema_params=average, optimizer=optimizer, steps=steps
        )

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
        fakes = self.fakes(state.generator, public_key(key))
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


class GPatePhase:
    """Algorithm 1, a window of steps at a time.

    One where windows would be unrolled, or where every step's votes are looked at.
    """

    def __init__(self, run: Run, gan: GPate):
        self._run, self._gan, self.name = run, gan, gan.name
        g_pate = run.config.g_pate
        self.total_steps = g_pate.steps
        self.images_per_step = float(g_pate.fakes)
        single = run.unrolls or g_pate.agreement
        self._length = 1 if single else math.gcd(g_pate.steps, WINDOW)
        self._agreement = self._of_the_teachers() if g_pate.agreement else None
        records = run.data.manifest.num_examples
        self._parts = Parts.of(run.data.index, records, g_pate.teachers)
        self._window_fn = parallel.pmapped(self._window, run.devices, donate=(0,))
        self._feed = Feed(run)

    def init(self) -> GPateState:
        key = public_key(self._run.keys.public('init g_pate', 0))
        return jax.device_get(jax.jit(self._gan.init)(key))

    def charged(self, step: int) -> Mapping[str, int]:
        return {self.name: step * self._gan.queries}

    def picture(self, state: GPateState) -> Image.Image:
        key = public_key(self._run.keys.public('picture', 0))
        return preview(self._run.config, state.ema_params, key)

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        run, steps = self._run, range(step, step + self._length)
        size = run.config.g_pate.batch_size
        draws = self._feed.deal([self._parts.batch(t, size) for t in steps])
        noise = np.stack([run.keys.noise(self.name, t) for t in steps])
        public = np.stack([run.keys.public('step', t) for t in steps])
        keys = run.on_every_device(noise), run.on_every_device(public)
        state, metrics = self._window_fn(state, self._feed.data, draws, *keys)
        if self._agreement:
            votes, passed = (np.asarray(metrics.pop(name)[0]) for name in EXACT)
            self._agreement.note(step, votes, passed > 0)
        return state, steps[-1] + 1, metrics

    def _of_the_teachers(self) -> Agreement:
        gan, plan = self._gan, self._run.plan
        ratio, sigma2 = noise_ratio(gan.config), gan.mechanism.noise_std
        check = (gan.threshold, ratio * sigma2) if ratio < math.inf else None
        delta = plan.delta - plan.overflow_delta
        return Agreement(self._run.workdir, self.name, sigma2, check, delta)

    def _window(
        self, state: Any, data: Any, draws: Any, noise_keys: Any, public_keys: Any
    ) -> tuple[Any, Metrics]:
        def body(state: GPateState, xs: Any) -> tuple[GPateState, Metrics]:
            draw, noise_key, key = xs
            return self._gan.step(state, gather(data, draw), noise_key, key)

        made: tuple[Any, Metrics] = repeat(
            self._run.unrolls, body, state, (draws, noise_keys, public_keys)
        )
        return made


def _check_devices(teachers: Teachers, run: Run) -> None:
    """States the memory that the teachers take; UserError where they do not fit."""
    if processes.count() > 1:
        raise UserError(
            '--cluster',
            f'has {processes.count()} processes, but the teachers of g_pate live in one',
            'Start one process; it uses all devices of its machine',
        )
    number, devices = run.config.g_pate.teachers, len(run.devices)
    where = 'config.g_pate.teachers'
    if number % devices:
        problem = f'is {number}, for {devices} devices'
        raise UserError(where, problem, 'Use a multiple')
    needed = teachers.num_bytes() / devices / 2**30
    there = device_memory(run.devices) / 2**30
    text = f'{number} teachers take {needed:.2f} GiB on each of {devices} device(s)'
    print(f'{text}, of {there:.1f} GiB')
    if needed > MEMORY_SHARE * there:
        problem = f'is {number}: {text}, which has {there:.1f} GiB'
        raise UserError(where, problem, 'Lower it, or g_pate.width, or batch_size')
