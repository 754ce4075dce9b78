"""DPGEN: its privacy plan, and the training of its score network."""

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.methods.dpgen.labeller import LabellerPhase
from dpaf_jax.methods.dpgen.randomised_response import sanitise
from dpaf_jax.methods.dpgen.score_matching import (
    Params,
    ScoreMatching,
    Shots,
    make_score_matching,
)
from dpaf_jax.methods.dpgen.warm_start import warm_start
from dpaf_jax.networks.score import UNLABELLED, make_score_network, noise_levels
from dpaf_jax.privacy.budgets import check_batch_size, claimed_plan, plan_of_one
from dpaf_jax.privacy.grid import add
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.sampling import Draw, shuffled_batches
from dpaf_jax.release.samplers.published_dpgen import is_published, labelled
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.input_pipeline import Feed, gather, poisson_records
from dpaf_jax.training.optimizers import TrainState
from dpaf_jax.training.run import Run

PUBLISHED_REASON = (
    'randomised response answers with private images, each of which can be read off the '
    'pair that it is released in; and labels come from a classifier that has learnt from '
    'the private images and their labels without noise'
)


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Returns:
        One mechanism, which spends all of epsilon; `as_published`, one without noise and
        the epsilon that the paper's Theorem 1 claims.

    Raises:
        UserError: the settings do not fit each other, N, or the budget.
    """
    score = mechanism(config, num_examples)
    if is_published(config) and config.privacy.is_private:
        return claimed_plan(score, config.privacy, num_examples, PUBLISHED_REASON)
    return plan_of_one(score, config.privacy, num_examples)


def train(run: Run) -> Any:
    """Trains the score network; returns the moving average of its parameters.

    Noise begins with phase `score`; a warm start before it never sees a private image,
    but as published. Then the network learns without labels, and a classifier follows, which
    reads private images as they are.
    """
    matching = make_score_matching(run.config, run.plan)
    start = warm_start(run, matching)
    if not is_published(run.config):
        return run.train(ScorePhase(run, matching, start)).ema_params
    score = run.train(PublishedPhase(run, matching, start)).ema_params
    return labelled(score, run.train(LabellerPhase(run)).ema_params)


def mechanism(config: Config, num_examples: int) -> Mechanism:
    """DPGEN's only one, without its noise; UserError where the settings do not fit N."""
    _check(config, num_examples)
    dpgen, published = config.dpgen, is_published(config)
    return Mechanism.bounded_sum(
        'score',
        'randomised response among private images'
        if published
        else 'sum of clipped gradients, one per singleton',
        config.privacy,
        num_examples,
        batch_size=dpgen.batch_size or num_examples,
        l2_sensitivity=math.inf if published else dpgen.l2_clip_norm,
        steps=dpgen.steps,
    )


def _check(config: Config, num_examples: int) -> None:
    dpgen = config.dpgen
    make_score_network(config)
    field, otherwise = 'config.dpgen.batch_size', ', or 0 for all'
    check_batch_size(field, dpgen.batch_size, num_examples, otherwise)
    if is_published(config) and dpgen.candidates > num_examples:
        raise UserError(
            'config.dpgen.candidates',
            f'is {dpgen.candidates}, but there are {num_examples} images',
            'Lower it',
        )
    if dpgen.sigma_min >= dpgen.sigma_max:
        raise UserError(
            'config.dpgen.sigma_min',
            f'is {dpgen.sigma_min}, not below sigma_max = {dpgen.sigma_max}',
            'Lower it',
        )
    if dpgen.guidance != 1 and not dpgen.label_dropout:
        raise UserError(
            'config.dpgen.guidance',
            f'is {dpgen.guidance}, but the network never trains without a label',
            'Set it to 1, or label_dropout above 0',
        )


class ScorePhase:
    """DP-SGD: one step a call, whose draw passes in microbatches.

    The microbatches' sums are exact, so their size changes nothing but speed.
    """

    name = 'score'

    def __init__(self, run: Run, matching: ScoreMatching, start: Params = None):
        self._run, self._matching, self._start = run, matching, start
        self._mechanism = matching.mechanism
        self.total_steps = self._mechanism.steps
        self.images = self._mechanism.expected_batch_size
        self._feed = Feed(run)
        self._compiled = parallel.pmapped(self._step, run.devices, donate=(0,))

    @functools.cached_property
    def _data(self) -> Any:
        """What a compiled step gets besides the draws."""
        return self._feed.data

    def init(self) -> TrainState:
        if self._start is not None:
            return jax.device_get(jax.jit(self._matching.start)(self._start))
        return self._run.first_state(self._matching.init, 'init score')

    def charged(self, step: int) -> Mapping[str, int]:
        before = {m.name: m.steps for m in self._run.plan}
        return {**before, 'score': step}

    def picture(self, state: TrainState) -> Image.Image:
        return self._run.picture(state.ema_params)

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run = self._run
        dealt = self._microbatches(self._draw(step))
        made = run.keys.public('shots', step), run.keys.noise('score', step)
        keys = [run.on_every_device(key) for key in made]
        state, metrics = self._compiled(state, self._data, dealt, *keys)
        return state, step + 1, metrics

    def _draw(self, step: int) -> Draw:
        return poisson_records(self._run, self._mechanism, step)

    def _microbatches(self, draw: Draw) -> dict[str, np.ndarray]:
        """A draw as [D, n, microbatch, 1] arrays."""
        devices = len(self._run.devices)
        share = -(-len(draw.indices) // devices)
        size = min(self._run.config.dpgen.microbatch, share)
        number = -(-share // size)
        dealt = self._feed.deal_one(draw.padded(devices * number * size))
        return {
            name: value.reshape(-1, number, size, *value.shape[2:])
            for name, value in dealt.items()
        }

    def _step(
        self, state: TrainState, data: Any, draw: Any, shots_key: Any, key: Any
    ) -> Any:
        def query(part: Any) -> Any:
            shots = self._shots(data, part, shots_key)
            return self._matching.query(state.params, shots)

        def more(sums: Any, part: Any) -> Any:
            return add(sums, query(part)), None

        first = jax.tree.map(lambda leaf: leaf[0], draw)
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(query, first))
        # Scanned on every backend: the network has no convolution that a CPU's loop slows.
        sums, _ = jax.lax.scan(more, nothing, draw)
        return self._matching.update(state, sums, key)

    def _shots(self, data: Any, part: Any, key_data: jax.Array) -> Shots:
        return self._matching.shots(gather(data, part), key_data)


class PublishedPhase(ScorePhase):
    """Step S3 as printed: plain training on the 'sanitised' pairs, one per image.

    The pairs have no labels: the paper's network is told none. They follow from the run's
    keys, so a run that goes on makes the same ones.
    """

    @functools.cached_property
    def _data(self) -> Any:
        dpgen, run = self._run.config.dpgen, self._run
        made = sanitise(
            np.asarray(run.data.images, np.float32) / 127.5 - 1,
            noise_levels(run.config),
            run.config.privacy.epsilon,
            dpgen.candidates,
            dpgen.threshold,
            run.keys.rng('sanitise', 0),
        )
        pairs = {
            'clean': made.recovered(),
            'noise': made.sigma[:, None, None, None] * made.direction,
            'sigma': made.sigma,
        }
        return parallel.replicate(pairs, run.devices)

    def picture(self, state: TrainState) -> Image.Image:
        return self._run.picture(state.ema_params, self._matching.sampler)

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        state, done, _ = super().window(state, step)
        return state, done, {}  # nothing has noised the gradient

    def _draw(self, step: int) -> Draw:
        size, run = int(self._mechanism.expected_batch_size), self._run
        return shuffled_batches(len(run.data.labels), size, 'score', run.keys, step)

    def _shots(self, data: Any, part: Any, key_data: jax.Array) -> Shots:
        index = part['indices'][:, 0]
        return Shots(
            clean=data['clean'][index],
            sigma=data['sigma'][index, None],
            noise=data['noise'][index, None],
            labels=jnp.full((len(index), 1), UNLABELLED),
            is_padding_example=part['is_padding_example'][:, 0],
        )
