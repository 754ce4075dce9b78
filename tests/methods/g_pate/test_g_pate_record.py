"""G-PATE's guarantee: a record has one teacher, a teacher one vote, whatever it has learnt."""

import dataclasses
import functools
import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from g_pate_cases import gan_of, settings

from dpaf_jax.audit import canaries
from dpaf_jax.methods.g_pate.teachers import Parts, Teachers
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.parallel import Split
from dpaf_jax.training.batch import ClipBatch

DEVICES = [pytest.param(1, marks=pytest.mark.slow), 8]
STEPS = 4


@functools.cache
def compiled(gan, number):
    def fakes(generator, key):
        return gan.fakes(generator, public_key(key))

    def counted(votes):
        made = parallel.total(voting.count(votes, gan.config.g_pate.bins, gan.grid))
        return made.rounded()

    devices = jax.local_devices()[:number]
    functions = fakes, gan.query, counted, gan.release, gan.learn
    return [parallel.pmapped(fn, devices) for fn in functions]


def histories(gan, number, datasets, parts_of=Parts.of):
    """The same public run on several data sets: what their teachers were and voted.

    All students learn from the ballots of the first: a guarantee must hold for whatever
    was released before.

    Returns:
        For each data set, by step: (teachers on the host, histograms [m, k, B]).
    """
    g, devices, keys = gan.config.g_pate, jax.local_devices()[:number], tiny.keys()
    make_fakes, query, counted, release, learn = compiled(gan, number)
    start = jax.device_get(jax.jit(gan.init)(jax.random.key(3)))
    state = parallel.replicate(start, devices)
    teachers = [state.teachers.tree for _ in datasets]
    made = [[] for _ in datasets]
    for step in range(STEPS):
        key = np.broadcast_to(keys.public('step', step), (number, 4))
        fakes, votes = make_fakes(state.generator.params, key), []
        for i, data in enumerate(datasets):
            draw = parts_of(data.index, 40, g.teachers).batch(step, g.batch_size)
            images, labels = data.images[draw.indices], data.labels[draw.indices]
            index = data.index[draw.indices].astype(np.int32)
            batch = ClipBatch(images, labels, draw.is_padding_example, index)
            dealt = ClipBatch(*(parallel.deal(x, number, 0, 0) for x in batch))
            teachers[i], vote = query(teachers[i], dealt, fakes)
            votes.append(vote)
            host = parallel.unreplicate(Split(teachers[i])).tree
            made[i].append((host, parallel.unreplicate(counted(vote))))
        noise = np.broadcast_to(keys.noise('votes', step), (number, 8))
        state, _ = learn(state, fakes, release(votes[0], noise))
    return made


def neighbours(gone):
    """A data set and the same with one record empty; the record is a wild one."""
    config = settings()
    whole = tiny.dataset(config)
    images = whole.images.copy()
    images[gone] = canaries.extremes(config.data, 1)[0]
    whole = dataclasses.replace(whole, images=images)
    rest = dataclasses.replace(
        whole,
        images=np.delete(whole.images, gone, axis=0),
        labels=np.delete(whole.labels, gone),
        index=np.delete(whole.index, gone),
    )
    return whole, rest


def others_moved(one, two, teacher):
    """Whether any other teacher's state differs in a single bit."""
    same = jax.tree.map(
        lambda a, b: np.array_equal(
            np.delete(a, teacher, axis=0), np.delete(b, teacher, axis=0)
        ),
        one,
        two,
    )
    return not all(jax.tree.leaves(same))


def far(one, two):
    """Per query, how far histograms are apart in l2, and their highest bins."""
    bins = np.linalg.norm(one - two, axis=-1)
    return bins.max(), np.abs(one.max(axis=-1) - two.max(axis=-1)).max()


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize('rate', [1e-3, 30.0])
def test_a_record_moves_its_own_teacher_alone_and_one_vote_at_every_step(number, rate):
    # At the second rate teachers run wild, and remember it.
    gan, gone = gan_of(g_pate__teacher_learning_rate=rate), 21
    one, two = histories(gan, number, neighbours(gone))
    mine, differed = gone % 8, False
    for (a, votes_a), (b, votes_b) in zip(one, two, strict=True):
        assert not others_moved(a, b, mine)
        bins, highest = far(votes_a, votes_b)
        assert bins <= math.sqrt(2) + 1e-6 and highest <= 1 + 1e-6
        differed = differed or bins > 0
    moved = [
        not np.array_equal(x[mine], y[mine])
        for x, y in zip(*(jax.tree.leaves(h[-1][0]) for h in (one, two)), strict=True)
    ]
    assert any(moved) and (differed or rate < 1)


def test_a_teacher_that_votes_nonsense_moves_no_more():
    vote, gone = Teachers.vote, 21

    def wild(self, params, *args):
        """Votes for the last bins, and NaN, once it has learnt from a steep record."""
        votes = vote(self, params, *args)
        size = sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(params))
        return jnp.where(size * 1e6 % 2 < 1, votes, 3 - votes)

    gan = gan_of(1.1)
    with mock.patch.object(Teachers, 'vote', wild):
        one, two = histories(gan, 1, neighbours(gone))
    for (a, votes_a), (b, votes_b) in zip(one, two, strict=True):
        assert not others_moved(a, b, gone % 8)
        assert far(votes_a, votes_b)[0] <= math.sqrt(2) + 1e-6


def test_parts_by_place_in_the_file_are_found_out():
    def by_place(index, records, teachers):
        return Parts.of(np.arange(len(index)), records, teachers)

    gan = gan_of(1.2, g_pate__teacher_learning_rate=30.0)
    one, two = histories(gan, 1, neighbours(21), by_place)
    assert others_moved(one[-1][0], two[-1][0], 21 % 8)
    assert max(far(a, b)[0] for (_, a), (_, b) in zip(one, two, strict=True)) > 1.5
