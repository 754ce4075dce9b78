"""The phase of adversarial methods: several discriminator steps, then one generator step."""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np
from PIL import Image

from dpaf_jax.methods.adversarial.networks import AdversarialState, Adversaries
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.input_pipeline import Feed, gather
from dpaf_jax.training.phase import Metrics, repeat, window_steps
from dpaf_jax.training.run import Run


class Method(Protocol):
    """What a method brings; a step is one of the discriminator."""

    @property
    def adversaries(self) -> Adversaries:
        """Networks and optimisers."""

    def mechanism_at(self, step: int) -> Mechanism:
        """The mechanism of the plan that a step belongs to; public."""

    def charged(self, step: int) -> Mapping[str, int]:
        """Steps of each mechanism done before `step`."""

    def eligible(self, labels: np.ndarray, step: int) -> np.ndarray:
        """Indices of the records whose turn it is, given all labels; private."""

    def draw(self, keys: RunKeys, eligible: np.ndarray, step: int) -> Draw:
        """Which of them take part."""

    def discriminator_step(
        self,
        state: AdversarialState,
        batch: ClipBatch,
        noise_key: jax.Array,
        key: jax.Array,
        noise_std: jax.Array,
    ) -> tuple[AdversarialState, Metrics]:
        """One private update: `noise_key` [8] uint32, `key` [4] uint32 of public coins."""

    def generator_step(
        self, state: AdversarialState, key: jax.Array
    ) -> tuple[AdversarialState, Metrics]:
        """One update by post-processing; `key` [4] uint32 of public coins."""


class AdversarialPhase:
    """A round is `discriminator_steps` on real images, then one generator step.

    A window is a round whose discriminator steps are scanned, or one step of them.
    """

    name = 'gan'

    def __init__(self, run: Run, method: Method):
        self._run, self._method = run, method
        settings = method.adversaries.settings
        self._round = settings.discriminator_steps
        self._length = 1 if run.unrolls else self._round
        self.total_steps = settings.generator_steps * self._round
        self.images = method.mechanism_at(0).expected_batch_size
        self._discriminator_fn = parallel.pmapped(self._steps, run.devices, (0,))
        self._generator_fn = parallel.pmapped(method.generator_step, run.devices, (0,))
        self._feed = Feed(run)

    def init(self) -> AdversarialState:
        return self._run.first_state(self._method.adversaries.init, 'init gan')

    def charged(self, step: int) -> Mapping[str, int]:
        return self._method.charged(step)

    def picture(self, state: AdversarialState) -> Image.Image:
        sampler = self._method.adversaries.shown(state)
        return self._run.picture(state.generator.ema_params, sampler)

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        steps = window_steps(step, self._length)
        xs = self._coins(steps)
        state, metrics = self._discriminator_fn(state, self._feed.data, *xs)
        rounds, left = divmod(steps.stop, self._round)
        if not left:
            key = self._run.keys.public('generator', rounds - 1)
            state, made = self._generator_fn(state, self._run.on_every_device(key))
            metrics |= made
        return state, steps.stop, metrics

    def _coins(self, steps: range) -> tuple[Any, ...]:
        """Draws, noise keys, public keys and noise levels of discriminator steps."""
        # The plan's N may count empty records; drawn or not, they add nothing.
        run, method, labels = self._run, self._method, self._run.data.labels
        draws = [method.draw(run.keys, method.eligible(labels, t), t) for t in steps]
        used = [method.mechanism_at(t) for t in steps]
        noise = [run.keys.noise(m.name, t) for m, t in zip(used, steps, strict=True)]
        public = [run.keys.public('step', t) for t in steps]
        std = np.array([m.noise_std for m in used], np.float32)
        rest = (np.stack(noise), np.stack(public), std)
        return self._feed.deal(draws), *map(run.on_every_device, rest)

    def _steps(self, state: Any, data: Any, draws: Any, *rest: Any) -> Any:
        def body(state: AdversarialState, xs: Any) -> tuple[AdversarialState, Metrics]:
            draw, *keys = xs
            batch = gather(data, draw)
            return self._method.discriminator_step(state, batch, *keys)

        return repeat(self._run.unrolls, body, state, (draws, *rest))
