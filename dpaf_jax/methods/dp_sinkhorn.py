"""DP-Sinkhorn: a generator that moves its images along an optimal transport (Cao et al. 2021).

"Don't generate me: Training differentially private generative models with Sinkhorn
divergence". A step draws records, and makes as many fakes as are expected to be drawn: a
public number. The entropic optimal transport between the two, under a cost of pixels and
labels, says where each fake should go: its gradient by the fakes. That gradient, all fakes
together, is clipped as one vector and noised; what comes back through the generator is
post-processing.

Sensitivity. A transport plan couples everybody: one record moves the gradient by every
fake. But the whole is one vector of norm at most C, whatever the records are, so one record
moves it by at most 2C. A record that is not drawn moves nothing, and draws are Poisson
samples: a Gaussian of sensitivity 2C, amplified by sampling.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods import DpSinkhornConfig
from dpaf_jax.networks.images import averaged, to_float
from dpaf_jax.networks.losses import transport_plan
from dpaf_jax.privacy.budgets import check_batch_size, plan_of_one
from dpaf_jax.privacy.clipping import clip_vector
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.noise import add_gaussian
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.summation import settled
from dpaf_jax.release.samplers.smooth import dp_sinkhorn_sampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.batch import ClipBatch, prior_labels
from dpaf_jax.training.optimizers import TrainState, averaged_step, make_optimizer
from dpaf_jax.training.phase import Metrics
from dpaf_jax.training.run import Run
from dpaf_jax.training.sampled_phase import SampledPhase

GRADIENT = 'gradient'
NOBODY = -1e9  # the logarithm of the mass of a slot that is padding


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Returns:
        One Poisson-sampled Gaussian mechanism, the same in both modes.

    Raises:
        UserError: the settings do not fit N or the images, or the budget.
    """
    settings = config.dp_sinkhorn
    _check(config, num_examples)
    gradient = Mechanism.bounded_sum(
        GRADIENT,
        'clipped gradient of the Sinkhorn loss by all fakes of a step',
        config.privacy,
        num_examples,
        batch_size=settings.batch_size,
        l2_sensitivity=2 * settings.l2_clip_norm,
        steps=settings.generator_steps,
    )
    return plan_of_one(gradient, config.privacy, num_examples)


def train(run: Run) -> Any:
    """Trains the generator; returns its parameters' average."""
    method = DpSinkhorn(run.config, run.plan)
    return run.train(SampledPhase(run, method, unrolls=run.unrolls)).ema_params


def _check(config: Config, num_examples: int) -> None:
    settings, side = config.dp_sinkhorn, config.data.image_size
    check_batch_size('config.dp_sinkhorn.batch_size', settings.batch_size, num_examples)
    if settings.cell > side:
        problem = f'is {settings.cell}, of a side of {side} pixels'
        raise UserError('config.dp_sinkhorn.cell', problem, 'Lower it')
    dp_sinkhorn_sampler(config)  # layers, size and cell fit each other


class Points(NamedTuple):
    """Where a transport begins or ends.

    Attributes:
        images: [n, h, w, C] means over cells, in [-1, 1].
        labels: [n] int32.
        log_mass: [n] float32, of masses that sum to 1.
    """

    images: jax.Array
    labels: jax.Array
    log_mass: jax.Array


@dataclasses.dataclass(frozen=True)
class DpSinkhorn:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan

    @property
    def settings(self) -> DpSinkhornConfig:
        """The method's fields."""
        return self.config.dp_sinkhorn

    @property
    def mechanism(self) -> Mechanism:
        """The sanitised gradient."""
        return self.plan[GRADIENT]

    @property
    def fresh(self) -> int:
        """Fakes on the other side of the debiasing term that are on no other."""
        return int(self.settings.debias_share * self.settings.batch_size)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        rate, steps = self.settings.learning_rate, self.settings.generator_steps
        return make_optimizer('adam', rate, steps)

    def init(self, key: jax.Array) -> TrainState:
        """Random parameters: public coins."""
        made = dp_sinkhorn_sampler(self.config).init(key)
        return TrainState.start(made, self._optimizer)

    def cost(self, ones: Points, others: Points) -> jax.Array:
        """[n, m] squared l2 and l1 distances of images with their scaled labels."""
        settings = self.settings
        gaps = ones.images[:, None] - others.images[None]
        # A cell stands for its pixels: costs are those of whole images.
        each = jnp.square(gaps) + settings.l1_weight * jnp.abs(gaps)
        pixels = settings.cell**2 * jnp.sum(each, axis=(2, 3, 4))
        differ = ones.labels[:, None] != others.labels
        # Two one-hot labels differ in two places.
        scale = settings.label_scale
        return pixels + differ * (2 * scale**2 + 2 * settings.l1_weight * scale)

    def distance(self, ones: Points, others: Points) -> jax.Array:
        """Cost of the entropic transport; its gradient is that at a fixed plan."""
        costs = self.cost(ones, others)
        moved = transport_plan(
            jax.lax.stop_gradient(costs),
            ones.log_mass,
            others.log_mass,
            self.settings.blur,
        )
        return jnp.sum(moved * costs)

    def loss(self, images: jax.Array, fresh: jax.Array, labels: Any, real: Any) -> Any:
        """The semi-debiased loss: 2 W(fakes, records) - W(fakes, fakes).

        The second W compares the fakes with themselves but for the first few, in whose
        place fresh ones of the same labels stand.
        """
        fakes, number = _uniform(images, labels), len(fresh)
        others = jnp.concatenate([images[number:], fresh])
        whose = jnp.concatenate([labels[number:], labels[:number]])
        debias = self.distance(fakes, _uniform(others, whose))
        return 2 * self.distance(fakes, real) - debias

    def query(
        self, images: jax.Array, fresh: jax.Array, labels: jax.Array, batch: ClipBatch
    ) -> tuple[Any, jax.Array]:
        """The clipped gradient by the fakes before the noise, and that by the fresh ones.

        Sensitivity of the first: 2 C, whatever a record did to the plan. The second is of
        a term without records: public.

        Args:
            images: [n, h, w, C] fakes, as means over cells.
            fresh: the others of the debiasing term.
            labels: [n] int32, public.
            batch: all devices' records, singletons.
        """
        real = self._points(batch)
        by_fakes, by_fresh = jax.grad(self.loss, (0, 1))(images, fresh, labels, real)
        clip = self.mechanism.bound(self.settings.l2_clip_norm)
        clipped = clip_vector(settled(by_fakes), clip)
        grid = self.mechanism.grid
        exact = ExactSum.of(grid.units(clipped), grid.spacing) if grid else clipped
        return exact, clip_vector(by_fresh, clip)

    def _points(self, batch: ClipBatch) -> Points:
        batch = batch.without_padding()
        images = averaged(to_float(jnp.asarray(batch.images[:, 0])), self.settings.cell)
        present = ~jnp.asarray(batch.is_padding_example[:, 0])
        number = jnp.maximum(jnp.sum(present), 1)
        log_mass = jnp.where(present, -jnp.log(number), NOBODY)
        return Points(images, jnp.asarray(batch.labels[:, 0]), log_mass)

    def step(
        self, state: TrainState, batch: ClipBatch, noise_key: jax.Array, key: Any
    ) -> tuple[TrainState, Metrics]:
        """One update of the generator; on every device the same, since it is small.

        Args:
            state: before.
            batch: this device's share of a Poisson draw.
            noise_key: [8] uint32 of this step alone.
            key: [4] uint32 of public coins.
        """
        noisy, by_fresh, pull = self.release(state, batch, noise_key, key)
        (gradient,) = pull(jnp.concatenate([noisy, by_fresh]))
        decay = self.settings.ema_decay
        state = averaged_step(self._optimizer, gradient, state, decay)
        return state, {'noisy_gradient_norm': optax.tree.norm(noisy)}

    def release(
        self, state: TrainState, batch: ClipBatch, noise_key: jax.Array, key: Any
    ) -> tuple[jax.Array, jax.Array, Any]:
        """The noisy gradient, the public one, and what takes both back to parameters."""
        key_z, key_label = jax.random.split(public_key(key))
        number = self.settings.batch_size
        labels = prior_labels(self.config.data.prior, key_label, number)
        whose = jnp.concatenate([labels, labels[: self.fresh]])
        sampler = dp_sinkhorn_sampler(self.config)
        z = jax.random.normal(key_z, (len(whose), sampler.z_dim))

        def make(generator: Any) -> jax.Array:
            made = sampler.generator.apply(generator, z, whose)
            return averaged(made, self.settings.cell)

        made, pull = jax.vjp(make, state.params)
        fakes, fresh = made[:number], made[number:]
        query, by_fresh = self.query(fakes, fresh, labels, batch.of_all_devices())
        noisy = add_gaussian(query, noise_key, self.mechanism.noise_std)
        return noisy, by_fresh, pull


def _uniform(images: jax.Array, labels: jax.Array) -> Points:
    return Points(images, labels, jnp.full(len(images), -math.log(len(images))))
