"""DP-MERF: a generator matched to one noisy mean embedding (Harder et al. 2021).

"DP-MERF: Differentially private mean embeddings with random features for practical
privacy-preserving data generation". The joint distribution of image and label is embedded
by random Fourier features of the image times the one-hot label. One pass over the data
sums the embeddings, one Gaussian makes the sum private, and all that follows is
post-processing: the generator is trained until its own mean embedding is near.

Sensitivity. A record adds one row of norm 1 (cosines and sines, clipped to 1 all the same)
to its class's row of the table. Emptying it moves the table by at most 1, replacing it by
any other by at most 2. The paper states epsilon for replacing, with the number of records
public as here, so `as_published` runs with twice the noise and is certified too: for
neighbours that include ours.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.networks.fourier import frequencies, waves
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.aggregation import aggregate, dpagg
from dpaf_jax.privacy.budgets import make_plan
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import REPLACE_ONE, Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.release.samplers.registry import preview
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training import losses
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.fakes import share_of_fakes
from dpaf_jax.training.input_pipeline import every_record
from dpaf_jax.training.optimizers import descend, make_optimizer, moving_average
from dpaf_jax.training.phase import repeat
from dpaf_jax.training.run import Run

EMBEDDING = 'embedding'
WINDOW = 10  # at most so many generator steps in one compiled call


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: one Gaussian on all records; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit each other, or the budget.
    """
    _check(config)
    replaces = config.privacy.guarantee == 'as_published'
    embedding = Mechanism(
        name=EMBEDDING,
        kind='sum of feature rows of norm 1 by class'
        + (', with one replaced' if replaces else ''),
        sampling_prob=1.0,
        l2_sensitivity=math.inf
        if math.isinf(config.privacy.epsilon)
        else 1.0 + replaces,
        steps=1,
        expected_batch_size=float(num_examples),
        capacity=num_examples,
    )
    only = (EMBEDDING,)
    made = make_plan([embedding], only, only, config.privacy, num_examples, None)
    return dataclasses.replace(made, neighbors=REPLACE_ONE) if replaces else made


def train(run: Run) -> Any:
    """Releases the embedding, trains the generator; returns its parameters' average."""
    merf = Merf(run.config, run.plan, len(run.devices))
    return run.train(MerfPhase(run, merf)).ema_params


def _check(config: Config) -> None:
    merf, k = config.dp_merf, config.data.num_classes
    if merf.features % 2:
        problem, remedy = f'is {merf.features}', 'Use an even number: cosines and sines'
        raise UserError('config.dp_merf.features', problem, remedy)
    scales = merf.length_scales
    if not scales or not all(0 < scale < math.inf for scale in scales):
        problem, remedy = f'is {scales}', 'Give one or more numbers above 0'
        raise UserError('config.dp_merf.length_scales', problem, remedy)
    if merf.batch_size < 2 * k:
        problem = f'is {merf.batch_size}, for {k} classes'
        remedy = f'Use at least {2 * k}: two images of each class'
        raise UserError('config.dp_merf.batch_size', problem, remedy)


class MerfState(NamedTuple):
    """Everything that persists between steps; all of it is released or public.

    Attributes:
        weights: [pixels, F / 2] frequencies of the features.
        embedding: [K, F] noisy mean row of each class; 0 before the release.
        generator, ema_params: parameters and their moving average.
        optimizer: of the generator.
        steps: int32 scalar, generator steps done.
    """

    weights: jax.Array
    embedding: jax.Array
    generator: Any
    ema_params: Any
    optimizer: optax.OptState
    steps: jax.Array


@dataclasses.dataclass(frozen=True)
class Merf:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan
    num_devices: int

    @property
    def mechanism(self) -> Mechanism:
        """The one release."""
        return self.plan[EMBEDDING]

    @property
    def expected_counts(self) -> np.ndarray:
        """[K, 1] float32 public expected number of records in each class."""
        prior = np.array(self.config.data.prior, np.float32)
        return self.plan.num_examples * prior[:, None]

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        merf = self.config.dp_merf
        return make_optimizer('adam', merf.learning_rate, merf.generator_steps)

    def init(self, key: jax.Array) -> MerfState:
        """Random features and parameters: public coins."""
        data, merf = self.config.data, self.config.dp_merf
        key_weights, key_generator = jax.random.split(key)
        shape = (data.image_size, data.image_size, data.channels)
        number = merf.features // 2
        generator = latent_sampler(self.config).init(key_generator)
        return MerfState(
            weights=frequencies(key_weights, shape, number, merf.length_scales),
            embedding=jnp.zeros((data.num_classes, merf.features)),
            generator=generator,
            ema_params=generator,
            optimizer=self._optimizer.init(generator),
            steps=jnp.int32(0),
        )

    def query(self, weights: jax.Array, batch: ClipBatch) -> jax.Array | ExactSum:
        """This device's pre-noise table [K, F] of some of the records.

        Sensitivity of the sum over all: 1 for an emptied record, 2 for a replaced one.
        """
        batch = batch.without_padding()
        images, labels = batch.images[:, 0], batch.labels[:, 0]
        return aggregate(
            waves(weights, to_float(images)),
            labels,
            batch.is_padding_example[:, 0],
            self.config.data.num_classes,
            1.0 if math.isfinite(self.mechanism.l2_sensitivity) else math.inf,
            self.mechanism.grid,
        )

    def release(
        self, state: MerfState, sums: jax.Array | ExactSum, key_data: jax.Array
    ) -> MerfState:
        """Noise on the sum over devices, once; then the public divisor."""
        expected = jnp.asarray(self.expected_counts)
        embedding = dpagg(sums, key_data, self.mechanism.noise_std, expected)
        return state._replace(embedding=embedding)

    def generator_step(
        self, state: MerfState, key_data: jax.Array
    ) -> tuple[MerfState, dict[str, jax.Array]]:
        """One update of the generator towards the released embedding: post-processing."""
        key = public_key(key_data)
        loss, gradient = jax.value_and_grad(self._loss)(state.generator, state, key)
        # The transpose of a sum over devices is a sum over devices: hence the mean.
        gradient = parallel.mean(gradient)
        generator, optimizer = descend(
            self._optimizer, gradient, state.generator, state.optimizer
        )
        steps, decay = state.steps + 1, self.config.dp_merf.ema_decay
        state = state._replace(
            generator=generator,
            ema_params=moving_average(state.ema_params, generator, steps, decay),
            optimizer=optimizer,
            steps=steps,
        )
        return state, {'loss_match': loss}

    def _loss(self, generator: Any, state: MerfState, key: jax.Array) -> jax.Array:
        """Squared distance of the joint embeddings, times K; without bias."""
        k = self.config.data.num_classes
        each = self.config.dp_merf.batch_size // k
        images, labels, is_padding = share_of_fakes(
            latent_sampler(self.config),
            generator,
            key,
            jnp.repeat(jnp.arange(k), each),
            self.num_devices,
        )
        rows = waves(state.weights, images)
        member = jnp.where(is_padding[:, None], 0.0, jax.nn.one_hot(labels, k))
        sums = parallel.total(member.T @ rows)
        squares = parallel.total(member.T @ jnp.sum(jnp.square(rows), axis=1))
        counts = jnp.full(k, float(each))
        distance = losses.unbiased_squared_distance(
            sums, squares, counts, state.embedding
        )
        prior = jnp.array(self.config.data.prior)
        return k * jnp.vdot(jnp.square(prior), distance)


class MerfPhase:
    """The release in front of the first generator step, then generator steps alone."""

    name = 'generator'

    def __init__(self, run: Run, merf: Merf):
        self._run, self._merf = run, merf
        self.total_steps = run.config.dp_merf.generator_steps
        self.images_per_step = float(run.config.dp_merf.batch_size)
        # Steps that are written out one by one compile one by one, too.
        most = 1 if run.unrolls else WINDOW
        self._length = math.gcd(self.total_steps, most)
        self._accumulate = parallel.pmapped(self._add, run.devices, donate=(0,))
        self._release_fn = parallel.pmapped(merf.release, run.devices, donate=(0,))
        self._window_fn = parallel.pmapped(self._window, run.devices, donate=(0,))

    def init(self) -> MerfState:
        key = public_key(self._run.keys.public('init merf', 0))
        return jax.device_get(jax.jit(self._merf.init)(key))

    def charged(self, step: int) -> Mapping[str, int]:
        return {EMBEDDING: min(step, 1)}

    def picture(self, state: MerfState) -> Image.Image:
        key = public_key(self._run.keys.public('picture', 0))
        return preview(self._run.config, state.ema_params, key)

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        if step == 0:
            state = self._release(state)
        steps = range(step, step + self._length)
        keys = np.stack([self._run.keys.public('step', t) for t in steps])
        state, metrics = self._window_fn(state, self._run.on_every_device(keys))
        return state, step + self._length, metrics

    def _window(self, state: MerfState, keys: jax.Array) -> Any:
        return repeat(self._run.unrolls, self._merf.generator_step, state, keys)

    def _add(self, sums: Any, weights: jax.Array, batch: ClipBatch) -> Any:
        return sums + self._merf.query(weights, batch)

    def _release(self, state: Any) -> Any:
        """One pass over all records, then noise, once."""
        run, grid = self._run, self._merf.mechanism.grid
        shape = state.embedding.shape[1:]
        nothing = grid.nothing(shape) if grid else np.zeros(shape, np.float32)
        sums = parallel.replicate(nothing, run.devices)
        for chunk in every_record(run):
            sums = self._accumulate(sums, state.weights, chunk)
        key = run.keys.noise(EMBEDDING, 0)
        return self._release_fn(state, sums, run.on_every_device(key))
