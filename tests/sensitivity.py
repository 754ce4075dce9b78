"""How far one record moves a query's pre-noise sum.

Zero-out neighbours, two ways: a record's slot becomes padding, or the data arrays lack it, so
that all others have other rows and slots. Parameters are scaled up until clips bind, and
images are chosen for extreme contrasts.
"""

import dataclasses
import math

import jax
import numpy as np
import tiny

from dpaf_jax.audit.target import Scene
from dpaf_jax.runtime import parallel

UNITS, MEMBERS = 8, 3
SCALES = (0.3, 3.0, 1e3)  # of the parameters


def adversarial_images(shape, size=8, channels=1):
    """Black, white, stripes, one bright pixel, noise, and one step of grey, in turn.

    In colours each channel is of the next kind.
    """
    rng = np.random.default_rng(3)
    grid = np.indices((size, size)).sum(axis=0)[..., None]
    kinds = [
        np.zeros((size, size, 1)),
        np.full((size, size, 1), 255),
        255 * (grid % 2),
        255 * (grid == 3),
        rng.integers(256, size=(size, size, 1)),
        127 + (grid > size),
        255 * (grid // 4 % 2),
    ]
    order = [
        np.concatenate([kinds[(i + c) % len(kinds)] for c in range(channels)], axis=2)
        for i in range(math.prod(shape))
    ]
    return np.array(order, np.uint8).reshape(*shape, size, size, channels)


def make_units(grouped, channels=1):
    shape = (UNITS, MEMBERS) if grouped else (UNITS, 1)
    labels = np.arange(math.prod(shape), dtype=np.int32).reshape(shape) % 3
    is_padding = np.zeros(shape, bool)
    if grouped:
        is_padding[0, 1:] = True  # a group of one, which leaving out empties
    return tiny.batch(adversarial_images(shape, channels=channels), labels, is_padding)


def unclipped(plan):
    """The plan of a mechanism that forgot to clip."""
    free = [dataclasses.replace(m, l2_sensitivity=math.inf) for m in plan.mechanisms]
    return dataclasses.replace(plan, mechanisms=tuple(free))


def deal(batch, number):
    return type(batch)(*(np.stack(np.split(x, number)) for x in batch))


def summed(query, number, state, batch):
    """The sum over devices as one float64 vector, exact where it lies on a grid."""
    return of_placed(query, number, placed(state, number), batch)


def placed(state, number):
    return parallel.replicate(state, jax.local_devices()[:number])


def of_placed(query, number, state, batch):
    """`summed` of a state that the devices have already."""
    return tiny.vector(parallel.unreplicate(query(state, deal(batch, number))))


def moves(query, number, states, batch):
    """How far leaving one record out moves the sum: for each state, each record."""
    far = []
    for state in states:
        there = placed(state, number)
        whole = of_placed(query, number, there, batch)
        scene = Scene(state, batch)
        for where in scene.places:
            for other in (scene.without(where), scene.removed(where)):
                rest = of_placed(query, number, there, other.batch)
                far.append(np.linalg.norm(whole - rest))
    return np.array(far)


def check(query, number, states, batch, sensitivity, power=0.9):
    """Bounded by the sensitivity, and the test would see a mechanism that is not."""
    far = moves(query, number, states, batch)
    assert far.max() <= sensitivity  # in exact arithmetic: nothing to allow for
    assert far.max() > power * sensitivity
