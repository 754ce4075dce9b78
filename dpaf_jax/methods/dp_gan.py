"""DP-GAN: a conditional GAN whose discriminator learns by DP-SGD (Bie et al. 2023).

"Private GANs, Revisited": the discriminator's gradient by each record is clipped and their
sum noised, the generator learns from the discriminator by post-processing, and the noise is
made up for by many discriminator steps per generator step.

What is clipped as one. The paper clips the gradients by reals and by fakes each alone, and
adds them. A fake needs no protection, but reals that are clipped need fakes of the same size
to hold them in balance: left unclipped, the fakes decide alone. Here a record is paired with
a fake of its own label, and the sum of the two losses is one clipped unit. What reals and
fakes have in common cancels in front of the clip, and the bound is spent on what tells them
apart. The sensitivity is that of the real alone: emptying the record empties its unit.
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

from dpaf_jax import parallel
from dpaf_jax.config import Config
from dpaf_jax.errors import UserError
from dpaf_jax.fakes import prior_labels, share_of_fakes
from dpaf_jax.feed import Feed, gather
from dpaf_jax.networks import Discriminator, make_layout, to_float
from dpaf_jax.optimizers import make_optimizer, moving_average
from dpaf_jax.privacy.budgets import make_plan
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.noise import add_gaussian
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.sampling import poisson_draw
from dpaf_jax.run import Run
from dpaf_jax.samplers import LatentSampler, latent_sampler, preview
from dpaf_jax.units import Units
from dpaf_jax.windows import repeat

DISCRIMINATOR = 'discriminator'
UNROLLED = 5  # at most so many discriminator steps in one unrolled call
Metrics = dict[str, jax.Array]


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: DP-SGD on Poisson samples; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit N, or the budget.
    """
    gan = config.dp_gan
    if gan.batch_size > num_examples:
        raise UserError(
            'config.dp_gan.batch_size',
            f'asks for {gan.batch_size} images a step of only {num_examples}',
            'Lower it',
        )
    no_clip = math.isinf(config.privacy.epsilon)
    discriminator = Mechanism(
        name=DISCRIMINATOR,
        kind='sum of clipped gradients, one per record with its fake',
        sampling_prob=gan.batch_size / num_examples,
        l2_sensitivity=math.inf if no_clip else gan.l2_clip_norm,
        steps=gan.generator_steps * gan.discriminator_steps,
        expected_batch_size=float(gan.batch_size),
        capacity=gan.batch_size,
    )
    only = (DISCRIMINATOR,)
    return make_plan([discriminator], only, only, config.privacy, num_examples, None)


def train(run: Run) -> Any:
    """Trains both networks in turn; returns the average of the generator's parameters."""
    gan = DpGan(run.config, run.plan, len(run.devices))
    return run.train(DpGanPhase(run, gan)).average


class DpGanState(NamedTuple):
    """Everything that persists between steps; all of it is released or public.

    Attributes:
        discriminator: parameters; a function of noisy sums.
        generator, average: parameters and their moving average.
        discriminator_optimizer, generator_optimizer: Adam's.
        generator_steps: int32 scalar.
    """

    discriminator: Any
    generator: Any
    average: Any
    discriminator_optimizer: optax.OptState
    generator_optimizer: optax.OptState
    generator_steps: jax.Array


class Pair(NamedTuple):
    """A record and a fake of its label: what is clipped as one.

    Attributes:
        real: [H, W, C] float32.
        fake: of the same shape.
        label: int32 scalar.
    """

    real: jax.Array
    fake: jax.Array
    label: jax.Array


@dataclasses.dataclass(frozen=True)
class DpGan:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan
    num_devices: int

    @property
    def mechanism(self) -> Mechanism:
        """The one that the discriminator's training is."""
        return self.plan[DISCRIMINATOR]

    @property
    def discriminator(self) -> Discriminator:
        """Narrow: the noise grows with the root of the number of its parameters."""
        gan, net = self.config.dp_gan, self.config.networks
        widths = [gan.width * 2**i for i in range(sum(make_layout(self.config).parts))]
        k = self.config.data.num_classes
        return Discriminator(tuple(widths), net.kernel_size, gan.fc_width, k)

    @property
    def sampler(self) -> LatentSampler:
        """The generator."""
        return latent_sampler(self.config)

    def optimizer(self, part: str) -> optax.GradientTransformation:
        """Adam with beta1 = 0.5, of the 'discriminator' or of the 'generator'."""
        rate = getattr(self.config.dp_gan, f'{part}_learning_rate')
        return make_optimizer('adam', rate)

    def init(self, key: jax.Array) -> DpGanState:
        """Random parameters: public coins."""
        data = self.config.data
        key_discriminator, key_generator = jax.random.split(key)
        image = jnp.zeros((1, data.image_size, data.image_size, data.channels))
        label = jnp.zeros(1, jnp.int32)
        discriminator = self.discriminator.init(key_discriminator, image, label)
        generator = self.sampler.init(key_generator)
        return DpGanState(
            discriminator=discriminator,
            generator=generator,
            average=generator,
            discriminator_optimizer=self.optimizer('discriminator').init(discriminator),
            generator_optimizer=self.optimizer('generator').init(generator),
            generator_steps=jnp.int32(0),
        )

    # --- discriminator ----------------------------------------------------------

    def pair_loss(self, params: Any, pair: Pair) -> jax.Array:
        """BCE of the real against 1 and of the fake against 0."""
        images = jnp.stack([pair.real, pair.fake])
        labels = jnp.stack([pair.label, pair.label])
        logits = self.discriminator.apply(params, images, labels)
        targets = jnp.array([1.0, 0.0])
        return jnp.sum(optax.sigmoid_binary_cross_entropy(logits, targets))

    def query(self, state: DpGanState, units: Units, key: jax.Array) -> Any:
        """The pre-noise sum of clipped gradients over all devices.

        Sensitivity: `l2_clip_norm`. A pair's gradient depends on its record, its own
        latent draw (a public coin), and on parameters that noisy outputs have made.

        Args:
            state: gives both networks.
            units: singletons.
            key: of the latent draws, equal on all devices.
        """
        units = units.without_padding()
        labels = units.labels[:, 0]
        shape = (len(labels) * self.num_devices, self.sampler.z_dim)
        z, _ = parallel.my_share(jax.random.normal(key, shape), self.num_devices)
        fakes = self.sampler.generator.apply(state.generator, z, labels)
        summed = clipped_gradient_sum(
            self.pair_loss,
            state.discriminator,
            Pair(to_float(units.images[:, 0]), fakes, labels),
            units.is_padding_example[:, 0],
            l2_clip_norm=self.mechanism.l2_sensitivity,
            grid=self.mechanism.grid,
        )
        return parallel.total(summed)

    def discriminator_step(
        self, state: DpGanState, units: Units, noise_key: jax.Array, key: jax.Array
    ) -> tuple[DpGanState, Metrics]:
        """One DP-SGD update; the divisor is public.

        Args:
            state: before.
            units: this device's share of a Poisson draw.
            noise_key: [2] uint32 of this step alone.
            key: [4] uint32 of public coins.
        """
        m = self.mechanism
        summed = self.query(state, units, public_key(key))
        noisy = add_gaussian(summed, noise_key, m.noise_std)
        gradient = jax.tree.map(lambda g: g / m.expected_batch_size, noisy)
        updates, optimizer = self.optimizer('discriminator').update(
            gradient, state.discriminator_optimizer, state.discriminator
        )
        state = state._replace(
            discriminator=optax.apply_updates(state.discriminator, updates),
            discriminator_optimizer=optimizer,
        )
        return state, {'noisy_gradient_norm': optax.tree.norm(gradient)}

    # --- generator --------------------------------------------------------------

    def generator_step(
        self, state: DpGanState, key_data: jax.Array
    ) -> tuple[DpGanState, Metrics]:
        """One update by -log D on fakes (non-saturating): post-processing."""
        key_z, key_label = jax.random.split(public_key(key_data))
        gan = self.config.dp_gan
        number = gan.generator_batch_size
        labels = prior_labels(self.config.data.prior, key_label, number)

        def loss(generator: Any) -> tuple[jax.Array, jax.Array]:
            fakes, mine, is_padding = share_of_fakes(
                self.sampler, generator, key_z, labels, self.num_devices
            )
            logits = self.discriminator.apply(state.discriminator, fakes, mine)
            each = optax.sigmoid_binary_cross_entropy(logits, jnp.ones_like(logits))
            told = jnp.where(is_padding, 0.0, jnp.stack([each, logits < 0]))
            value, rejected = parallel.total(jnp.sum(told, axis=1)) / number
            return value, rejected

        made = jax.value_and_grad(loss, has_aux=True)(state.generator)
        (value, rejected), gradient = made
        # The transpose of a sum over devices is a sum over devices: hence the mean.
        gradient = parallel.mean(gradient)
        updates, optimizer = self.optimizer('generator').update(
            gradient, state.generator_optimizer, state.generator
        )
        generator = optax.apply_updates(state.generator, updates)
        steps = state.generator_steps + 1
        state = state._replace(
            generator=generator,
            average=moving_average(state.average, generator, steps, gan.ema_decay),
            generator_optimizer=optimizer,
            generator_steps=steps,
        )
        return state, {'loss_generator': value, 'fakes_rejected': rejected}


class DpGanPhase:
    """`discriminator_steps` on real images, then one generator step: a window.

    A step is one of the discriminator. The window's discriminator steps are scanned in
    one call, or unrolled a few at a time.
    """

    name = 'gan'

    def __init__(self, run: Run, gan: DpGan):
        self._run, self._gan = run, gan
        self._mechanism = gan.mechanism
        self.total_steps = self._mechanism.steps
        self.images_per_step = self._mechanism.expected_batch_size
        self._window_steps = run.config.dp_gan.discriminator_steps
        most = UNROLLED if run.unrolls else self._window_steps
        divisors = [n for n in range(1, most + 1) if self._window_steps % n == 0]
        self._call_steps = max(divisors)
        self._discriminator_fn = parallel.pmapped(self._steps, run.devices, (0,))
        self._generator_fn = parallel.pmapped(gan.generator_step, run.devices, (0,))
        self._feed = Feed(run)

    def init(self) -> DpGanState:
        key = public_key(self._run.keys.public('init gan', 0))
        return jax.device_get(jax.jit(self._gan.init)(key))

    def charged(self, step: int) -> Mapping[str, int]:
        return {DISCRIMINATOR: step}

    def picture(self, state: DpGanState) -> Image.Image:
        key = public_key(self._run.keys.public('picture', 0))
        return preview(self._run.config, state.average, key)

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        run, end = self._run, step + self._window_steps
        metrics: Metrics = {}
        for start in range(step, end, self._call_steps):
            xs = self._coins(range(start, start + self._call_steps))
            state, metrics = self._discriminator_fn(state, self._feed.data, *xs)
        key = run.keys.public('generator', step // self._window_steps)
        state, made = self._generator_fn(state, run.on_every_device(key))
        return state, end, metrics | made

    def _coins(self, steps: range) -> tuple[Any, np.ndarray, np.ndarray]:
        """Draws, noise keys and public keys of discriminator steps."""
        # The plan's N may count empty records; drawn or not, they add nothing.
        run, there = self._run, len(self._run.data.labels)
        draws = [poisson_draw(self._mechanism, there, run.keys, t) for t in steps]
        noise = np.stack([run.keys.noise(DISCRIMINATOR, t) for t in steps])
        public = np.stack([run.keys.public('step', t) for t in steps])
        return (
            self._feed.deal(draws),
            run.on_every_device(noise),
            run.on_every_device(public),
        )

    def _steps(
        self, state: Any, data: Any, draws: Any, noise_keys: Any, public_keys: Any
    ) -> tuple[Any, Metrics]:
        def body(state: DpGanState, xs: Any) -> tuple[DpGanState, Metrics]:
            draw, noise_key, key = xs
            units = gather(data, draw)
            return self._gan.discriminator_step(state, units, noise_key, key)

        xs = (draws, noise_keys, public_keys)
        made: tuple[Any, Metrics] = repeat(self._run, body, state, xs)
        return made
