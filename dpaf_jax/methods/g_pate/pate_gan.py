"""PATE-GAN: teachers say which fakes look real, a student discriminator learns from that.

Jordon, Yoon, van der Schaar, "PATE-GAN: Generating Synthetic Data with Differential Privacy
Guarantees" (ICLR 2019), Algorithm 1. Teachers on disjoint parts of the data are G-PATE's,
with votes of their own (voters.py). What leaves them is one number for each fake: how many
took it for real, with noise. The student discriminator sees fakes alone, each with what the
teachers made of it; the generator learns against the student.

Guarantee: a teacher votes 0 or 1 on each image shown, whatever its state. One record has one
teacher, so it moves a count by at most 1. All counts of all steps are charged in full, by
Gaussian noise and without a look at how far teachers agree. They are sums of whole numbers,
on a grid, exact. What student and generator do with noisy counts is post-processing: they may
learn from each many times.

The paper's epsilon is the moments accountant's, by how strongly the private votes agreed. It
is a private number, and is stated and stopped by without noise: `as_published` is refused.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.methods.g_pate.phase import train_student
from dpaf_jax.methods.g_pate.plan import answers_plan, check, refuse_agreement
from dpaf_jax.methods.g_pate.student import Fakes, GPate, GPateState
from dpaf_jax.methods.g_pate.teachers import State, Teacher, cell
from dpaf_jax.methods.g_pate.voters import Voters
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.parallel import Split
from dpaf_jax.training.batch import ClipBatch, prior_labels
from dpaf_jax.training.optimizers import descend, make_optimizer
from dpaf_jax.training.phase import Metrics
from dpaf_jax.training.run import Run

COUNTS = 'counts'
# Of a pair of images in [-1, 1]: the logarithm of nothing is no number.
LEAST_GAP = 1e-3


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: every count charged; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit N, or the budget; or the run is `as_published`.
    """
    check(config, num_examples)
    if config.privacy.as_published:
        problem = "is 'as_published', whose epsilon is a private number with pate_gan"
        raise UserError('config.privacy.guarantee', problem, "Set it to 'certified'")
    refuse_agreement(config)
    return answers_plan(
        config,
        num_examples,
        name=COUNTS,
        kind='votes of teachers on disjoint parts: one count for each image shown',
        l2_sensitivity=1.0,
        steps=config.g_pate.steps * shown(config),
    )


def shown(config: Config) -> int:
    """Images that teachers vote on at a step."""
    return config.g_pate.fakes * config.pate_gan.copies


def train(run: Run) -> Any:
    """Trains teachers, student and generator; returns the generator's average."""
    return train_student(run, PateGan(run.config, run.plan))


def octaves(
    key: jax.Array, shape: tuple[int, ...], side: int, number: int
) -> jax.Array:
    """Normal noise of about unit variance, strong where images are: in what is smooth.

    Args:
        key: of public coins.
        shape: [s, H, W, C].
        side: of the finest cells, in pixels; twice as long in each octave.
        number: of octaves, all of the same strength.
    """
    made = jnp.zeros(shape)
    for i, each in enumerate(jax.random.split(key, number)):
        grain = side * 2**i
        coarse = shape[0], -(-shape[1] // grain), -(-shape[2] // grain), shape[3]
        noise = jax.random.normal(each, coarse)
        made += jax.image.resize(noise, shape, 'bilinear') / math.sqrt(number)
    return made


class Student(NamedTuple):
    """The student discriminator: a function of noisy counts and public coins.

    Attributes:
        params, opt_state: of its network and its optimiser.
        images, labels, real: [R * s, ...] what was shown in the latest R steps, newest
            first, and the noisy share of teachers to whom it looked real.
    """

    params: Any
    opt_state: optax.OptState
    images: jax.Array
    labels: jax.Array
    real: jax.Array

    def remember(self, images: jax.Array, labels: jax.Array, real: jax.Array) -> Any:
        """With what a step has shown in place of the oldest."""

        def pushed(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.concatenate([new, old])[: len(old)]

        return self._replace(
            images=pushed(images, self.images),
            labels=pushed(labels, self.labels),
            real=pushed(real, self.real),
        )


@dataclasses.dataclass(frozen=True)
class PateGan(GPate):
    """The static part, where it is not G-PATE's."""

    name = COUNTS

    @property
    def queries(self) -> int:
        """Of a step: one for each image shown."""
        return shown(self.config)

    @property
    def teachers(self) -> Voters:
        """Their side."""
        return Voters(self.config)

    @property
    def student_network(self) -> Teacher:
        """Of the student discriminator."""
        width, classes = self.config.pate_gan.width, self.config.data.num_classes
        return Teacher((2 * width, width), classes, cell(self.config))

    @property
    def student_optimizer(self) -> optax.GradientTransformation:
        """Its Adam."""
        return make_optimizer('adam', self.config.pate_gan.student_learning_rate)

    def init(self, key: jax.Array) -> GPateState:
        """Random parameters, and a student who has seen nothing: public coins."""
        number = self.config.pate_gan.remembered * self.queries
        images = jnp.zeros((number, *self.config.data.shape))
        labels = jnp.zeros(number, jnp.int32)
        params = self.student_network.init(
            jax.random.fold_in(key, 1), images[:1], labels[:1]
        )
        opt_state, real = self.student_optimizer.init(params), jnp.zeros(number)
        student = Student(params, opt_state, images, labels, real)
        return super().init(key)._replace(student=student)

    def questions(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """[s, H, W, C] the images shown: copies of fakes, each with public noise of its own.

        The student learns from fakes alone, and so knows nothing of what lies beside them:
        where no fake differs, its slope is an accident that the generator would follow.
        """
        settings = self.config.pate_gan
        copies = jnp.tile(images, (settings.copies, 1, 1, 1))
        number = 1 if self.config.data.columns else settings.octaves
        noise = octaves(key, copies.shape, cell(self.config), number)
        return jnp.clip(copies + settings.spread * noise, -1, 1)

    def answer(self, params: Any, fakes: Fakes) -> jax.Array:
        """[s] float32 votes of one teacher."""
        return self.teachers.say(params, fakes.questions, self.labels_shown(fakes))

    def labels_shown(self, fakes: Fakes) -> jax.Array:
        """[s] of the images shown."""
        return jnp.tile(fakes.labels, self.config.pate_gan.copies)

    def release(self, votes: jax.Array, key_data: jax.Array) -> jax.Array:
        """[s] the step's counts over all devices, noised once."""
        return voting.noisy_sum(votes, key_data, self.mechanism.noise_std)

    def step(
        self, state: GPateState, parts: ClipBatch, noise_key: jax.Array, key: jax.Array
    ) -> tuple[GPateState, Metrics]:
        """One iteration of algorithm 1: teachers, student, generator.

        Args:
            state: before.
            parts: a unit of records for each of this device's teachers.
            noise_key: [8] uint32 of this step alone.
            key: [4] uint32 of public coins.
        """
        for_fakes, for_student, for_generator = jax.random.split(public_key(key), 3)
        fakes = self.fakes(state.generator.params, for_fakes)
        teachers, votes = self.query(state.teachers.tree, parts, fakes)
        counts = self.release(votes, noise_key)
        # Above 1, a student who knows an image by heart would go on for ever.
        real = jnp.clip(counts / self.config.g_pate.teachers, 0, 1)
        if self.config.pate_gan.majority:
            real = (real > 0.5).astype(jnp.float32)

        student = state.student.remember(
            fakes.questions, self.labels_shown(fakes), real
        )
        known = jnp.minimum((state.generator.steps + 1) * len(real), len(student.real))
        student = self.teach(student, known, for_student)
        state = state._replace(teachers=Split(teachers), student=student)
        metrics = {'looks_real': jnp.mean(real), 'votes_differ': jnp.std(real)}
        return self.follow(state, for_generator), metrics

    def teach(self, student: Student, known: jax.Array, key: jax.Array) -> Student:
        """The student's steps on what it remembers: post-processing."""
        settings = self.config.pate_gan

        def loss(params: Any, at: jax.Array) -> jax.Array:
            logits = self.student_network.apply(
                params, student.images[at], student.labels[at]
            )
            each = optax.sigmoid_binary_cross_entropy(logits, student.real[at])
            return jnp.mean(each)

        def body(i: jax.Array, state: State) -> State:
            coins, shape = jax.random.fold_in(key, i), (settings.batch_size,)
            gradient = jax.grad(loss)(
                state[0], jax.random.randint(coins, shape, 0, known)
            )
            return descend(self.student_optimizer, gradient, *state)

        start = student.params, student.opt_state
        params, opt_state = jax.lax.fori_loop(0, settings.student_steps, body, start)
        return student._replace(params=params, opt_state=opt_state)

    def follow(self, state: GPateState, key: jax.Array) -> GPateState:
        """The generator's step to where the student sees real images: post-processing.

        A student of few, noisy votes has one slope for a whole class, which would move all
        images of it to the same place. So pairs of a class are kept apart (Mao et al. 2019,
        "Mode seeking generative adversarial networks", here by logarithms).
        """
        key_z, key_labels = jax.random.split(key)
        settings = self.config.pate_gan
        pairs = -(-settings.batch_size // 2)
        z = jax.random.normal(key_z, (2 * pairs, self.sampler.z_dim))
        one = prior_labels(self.config.data.prior, key_labels, pairs)
        labels = jnp.tile(one, 2)

        def loss(generator: Any) -> jax.Array:
            images = self.sampler.generator.apply(generator, z, labels)
            logits = self.student_network.apply(state.student.params, images, labels)
            gaps = jnp.abs(images[:pairs] - images[pairs:])
            apart = jnp.log(jnp.mean(gaps, axis=(1, 2, 3)) + LEAST_GAP)
            fooled = jnp.mean(jax.nn.softplus(-logits))
            return fooled - settings.variety * jnp.mean(apart)

        return self.descended(state, jax.grad(loss)(state.generator.params))
