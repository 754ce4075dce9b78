"""What DPAF's phases share: which records and keys go into which step.

A window is a whole number of steps in one compiled call: scanned on accelerators,
unrolled on CPU. The host draws the coins; images stay on the device where they fit.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from dpaf_jax.methods.dpaf.draws import draw_records
from dpaf_jax.methods.dpaf.networks import Params, started
from dpaf_jax.methods.dpaf.phase2.gan import Gan, GanState, StepKeys
from dpaf_jax.release.samplers.dpaf import LABELLER
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.training.input_pipeline import Feed
from dpaf_jax.training.run import Run


class GanPhase:
    """What both kinds of phase 2 share."""

    name = 'gan'
    total_steps: int
    images: float | Callable[[int], float]

    def __init__(self, run: Run, gan: Gan, learnt: Any, start: Params | None = None):
        self._run, self._gan, self._learnt = run, gan, learnt
        self._start = start or {}
        self._feed = Feed(run)
        self.images = gan.schedule.dpagg.expected_batch_size
        before = {'conv1', LABELLER} - gan.updates.keys()
        self._before = {m.name: m.steps for m in run.plan if m.name in before}

    def init(self) -> GanState:
        state = self._run.first_state(self._gan.init, 'init gan', self._learnt)
        start = {n: p for n, p in self._start.items() if n not in (self._learnt or {})}
        generator = state.generator
        params = started({**state.params, 'generator': generator.params}, start)
        made = params.pop('generator')
        generator = generator._replace(params=made, ema_params=made)
        return state._replace(params=params, generator=generator)

    def picture(self, state: GanState) -> Image.Image:
        generator = latent_sampler(self._run.config)
        return self._run.picture(state.generator.ema_params, generator)

    @functools.cached_property
    def _eligible(self) -> list[Any]:
        """Records of each turn's classes; private, like every index."""
        schedule = self._gan.schedule
        if schedule.turns == 1:
            return [None]
        labels = np.asarray(self._run.data.labels)
        return [
            np.flatnonzero(schedule.active(t)[labels]) for t in range(schedule.turns)
        ]

    def _keys(self, step: int) -> StepKeys:
        noise = self._run.keys.noise
        update = step // self._run.config.dpaf.asymmetry
        return StepKeys(
            real_noise=noise('dpagg', step),
            fake_noise=noise('fake', step),
            update_noise={name: noise(name, update) for name in self._gan.updates},
            public=self._run.keys.public('step', step),
        )

    def _update_draws(self, update: int) -> dict[str, dict[str, np.ndarray]]:
        """This device's share of a draw for each of `Gan.updates`, independent ones."""
        plan = self._run.plan
        return {
            name: self._feed.deal_one(draw_records(self._run, plan[name], update))
            for name in self._gan.updates
        }
