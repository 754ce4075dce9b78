"""Phases on tiny data sets: every mode of phase 2, trained once and compared by many tests."""

import functools
import math
import tempfile

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.phase2.batch_phase import BatchPhase
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.one_shot_phase import OneShotPhase
from dpaf_jax.methods.dpaf.phase2.published import PublishedBatchPhase
from dpaf_jax.methods.dpaf.train import window
from dpaf_jax.runtime import parallel
from dpaf_jax.training import input_pipeline
from dpaf_jax.training.run import Run

# Plain SGD everywhere: Adam divides rounding by rounding where a gradient is 0.
SGD = {
    f'dpaf__{part}__{field}': value
    for part in ('classifier', 'conv2', 'head', 'generator')
    for field, value in (('optimizer', 'sgd'), ('learning_rate', 0.1))
}
SIGMA = 0.1
EACH_STEP = {'dpaf__asymmetry': 1, 'dpaf__n_critic': 1}  # a window is one step
MODES = {
    'canonical': {},
    'groups': {**EACH_STEP, 'dpaf__conv2__gradient': 'group'},
    'turns, three losses': {
        **EACH_STEP,
        'dpaf__epochs': 0.1,
        'dpaf__batches': 'class_pure',
        'dpaf__classes_per_step': 1,
        'dpaf__batch_size': 3,
        'dpaf__taps': 'count,conv2',
        'dpaf__generator__loss_aggregate': 0.5,
        'dpaf__generator__loss_match': 2.0,
    },
    'all classes at once, cotangent': {
        **EACH_STEP,
        'dpaf__batches': 'class_pure',
        'dpaf__batch_size': 3,
        'dpaf__conv2__gradient': 'cotangent',
    },
    'conv1 with D': {'dpaf__classifier__private': 'discriminator'},
    'as published': {'privacy__guarantee': 'as_published'},
    'one shot': {
        **tiny.ONE_SHOT,
        'dpaf__generator_steps': 2,
        'dpaf__taps': 'count,pixels,contrast,fourier,conv1,conv2',
        'dpaf__generator__loss_smooth': 0.5,
    },
    'one shot, whitened': {**tiny.ONE_SHOT, 'dpaf__generator__whitenings': 1},
    'one shot, labelled': {
        **tiny.ONE_SHOT,
        'dpaf__classifier__private': 'labeller',
        'dpaf__taps': 'count,wavelet,labeller',
        'dpaf__generator__loss_smooth': 0.5,
        'dpaf__generator__whitenings': 1,
    },
}


def make_gan(config, plan, devices=1):
    return Gan(config, plan, devices)


def gan_phase(devices=1, sigma=SIGMA, **fields):
    """(run, gan, phase, a start that costs no compilation)."""
    config = tiny.config(**{**SGD, **fields})
    folder = tempfile.gettempdir()  # nothing is written there
    run = tiny.run(folder, config, devices, sigma)
    gan = make_gan(config, run.plan, devices)
    if run.plan['dpagg'].sampling_prob == 1:
        phase = OneShotPhase(run, gan, None)
    else:
        kind = PublishedBatchPhase if gan.published else BatchPhase
        phase = kind(run, gan, None, window)
    return run, gan, phase, tiny.state(gan, scale=0.3)


def train(run, phase, state, windows=math.inf):
    """The host state after the phase; replicas are checked on the way out."""
    placed, step = parallel.replicate(state, run.devices), 0
    while step < phase.total_steps and windows > 0:
        placed, step, _ = phase.window(placed, step)
        windows -= 1
    return parallel.unreplicate(placed)


@functools.cache
def trained(mode, devices=1, unrolls=True):
    """(start, end, gan) of a whole phase."""
    run, gan, phase, start = gan_phase(devices, **MODES[mode])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, 'unrolls', property(lambda self: unrolls))
        patch.setattr(input_pipeline, 'CHUNK', 2)
        return start, train(run, phase, start), gan


def equal(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)
