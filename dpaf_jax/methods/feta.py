"""FETA: a score network that learns from a first release, then from the private images.

In the line of DP-FETA and FETA-Pro (Gong et al., "From Easy to Hard"): what is cheap in noise
is learnt first. Here the first release is DPAF's one-shot aggregates with its labeller, the
second part DPGEN's training:

    1. DPAF with a share of epsilon                          -> a generator of labelled images
    2. score matching on what that generator makes, unnoised: post-processing
    3. score matching on the private images by DP-SGD        -> the released score network
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.methods import dpaf, dpgen
from dpaf_jax.methods.dpgen.phase import ScorePhase
from dpaf_jax.methods.dpgen.score_matching import (
    Params,
    ScoreMatching,
    make_score_matching,
)
from dpaf_jax.networks.images import to_float, to_uint8
from dpaf_jax.privacy.budgets import with_last
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release.samplers.dpaf import dpaf_sampler
from dpaf_jax.release.samplers.protocol import LabellingSampler
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.batch import ClipBatch, prior_labels
from dpaf_jax.training.optimizers import TrainState
from dpaf_jax.training.run import Run


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The first release's mechanisms, and `score` with what they leave of epsilon.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit each other, N, or the budget; or the run is
            `as_published`, which this method has no form of.
    """
    if config.privacy.as_published:
        problem = "is 'as_published', which feta has no form of"
        raise UserError('config.privacy.guarantee', problem, "Set it to 'certified'")
    first = dpaf.plan(first_release(config), num_examples)
    score = dpgen.mechanism(config, num_examples)
    return with_last(first, score, config.privacy)


def first_release(config: Config) -> Config:
    """The config of part 1: DPAF, with its share of epsilon."""
    epsilon = config.feta.share * config.privacy.epsilon
    privacy = dataclasses.replace(config.privacy, epsilon=epsilon)
    return dataclasses.replace(config, method='dpaf', privacy=privacy)


def train(run: Run) -> Any:
    """Trains the first release, then the score network; returns its parameters' average.

    Guarantee: part 2 reads the parameters that part 1 would release, and public coins.
    """
    config = first_release(run.config)
    released = dpaf.train(dataclasses.replace(run, config=config))
    taught = run.train(FirstImagesPhase(run, released)).ema_params
    matching = make_score_matching(run.config, run.plan)
    return run.train(ScorePhase(run, matching, taught)).ema_params


class FirstImagesPhase:
    """Score matching on images of the first release, each made for one step.

    Args:
        run: whose data are not read.
        released: what DPAF would release.
    """

    name = 'first_images'

    def __init__(self, run: Run, released: Params):
        self._run, self._matching = run, _without_noise(run)
        self._sampler = dpaf_sampler(first_release(run.config))
        self._released = parallel.replicate(released, run.devices)
        self.total_steps = run.config.dpgen.warm_start_steps
        self._size = -(-run.config.dpgen.microbatch // len(run.devices))
        self.images = float(self._size * len(run.devices))
        self._compiled = parallel.pmapped(self._step, run.devices, donate=(0,))

    def init(self) -> TrainState:
        return self._run.first_state(self._matching.init, 'init score')

    def charged(self, step: int) -> Mapping[str, int]:
        return {m.name: m.steps for m in self._run.plan if m.name != 'score'}

    def picture(self, state: TrainState) -> Image.Image:
        return self._run.picture(state.ema_params)

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        keys = self._run.keys
        made = keys.public('first images', step), keys.public('first shots', step)
        dealt = [self._run.on_every_device(key) for key in made]
        state, metrics = self._compiled(state, self._released, *dealt)
        return state, step + 1, metrics

    def _step(
        self, state: TrainState, released: Params, key: jax.Array, shots_key: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        shots = self._matching.shots(self._images(released, key), shots_key)

        def mean(params: Params) -> jax.Array:
            return jnp.mean(self._matching.loss(params, shots))

        loss, gradient = parallel.mean(jax.value_and_grad(mean)(state.params))
        state = self._matching.descend(state, gradient, self.total_steps)
        return state, {'loss': loss}

    def _images(self, released: Params, key_data: jax.Array) -> ClipBatch:
        """This device's images, as a release of part 1 alone would hold them."""
        device, _ = parallel.place()
        keys = jax.random.split(jax.random.fold_in(public_key(key_data), device))
        labels = prior_labels(self._run.config.data.prior, keys[0], self._size)
        images = to_uint8(self._sampler.sample(released, keys[1], labels))
        if isinstance(self._sampler, LabellingSampler):
            labels = self._sampler.label(released, to_float(images))
        index = device * self._size + jnp.arange(self._size)
        nothing = jnp.zeros((self._size, 1), bool)
        return ClipBatch(images[:, None], labels[:, None], nothing, index[:, None])


def _without_noise(run: Run) -> ScoreMatching:
    """Score matching at the rate of gradients that no noise is added to."""
    rate = run.config.feta.learning_rate
    dpgen = dataclasses.replace(run.config.dpgen, learning_rate=rate)
    config = dataclasses.replace(run.config, dpgen=dpgen)
    return make_score_matching(config, run.plan)
