"""Contracts of the one file that knows about devices."""

import re

import jax
import numpy as np
import pytest

from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError


@pytest.fixture
def devices():
    found = jax.local_devices()
    assert len(found) == 8
    return found


def test_zero_devices_means_all_and_too_many_are_refused(devices):
    assert parallel.pick_devices(0) == devices
    assert parallel.pick_devices(3) == devices[:3]
    with pytest.raises(UserError, match='config.run.devices: is 9, .* has 8'):
        parallel.pick_devices(9)


def test_replicate_and_unreplicate_are_inverse(devices):
    tree = {'a': np.arange(6.0, dtype=np.float32).reshape(2, 3), 'b': np.int32(7)}
    placed = parallel.replicate(tree, devices)
    assert placed['a'].shape == (8, 2, 3)
    assert {shard.device for shard in placed['a'].addressable_shards} == set(devices)
    back = parallel.unreplicate(placed)
    assert np.array_equal(back['a'], tree['a'])
    assert back['b'] == 7
    assert back['b'].dtype == np.int32
    assert np.array_equal(parallel.first(placed)['a'], tree['a'])


def test_unreplicate_raises_where_one_replica_differs_in_a_bit(devices):
    values = np.ones((8, 3), np.float32)
    parallel.unreplicate(jax.pmap(lambda x: x, devices=devices)(values))
    values[5, 1] = np.nextafter(np.float32(1), np.float32(2))
    with pytest.raises(parallel.ReplicasDiffer):
        parallel.unreplicate(jax.pmap(lambda x: x, devices=devices)(values))


def test_equal_replicas_may_hold_nan(devices):
    values = np.full((8, 2), np.nan, np.float32)
    back = parallel.unreplicate(jax.pmap(lambda x: x, devices=devices)(values))
    assert np.all(np.isnan(back))


def test_total_and_mean_cross_the_devices(devices):
    values = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    fn = parallel.pmapped(lambda x: (parallel.total(x), parallel.mean(x)), devices)
    total, mean = parallel.unreplicate(fn(values))
    assert np.array_equal(total, values.sum(axis=0))
    assert np.array_equal(mean, values.mean(axis=0))


def test_a_tree_crosses_as_one_message_for_each_type(devices):
    tree = {
        'a': np.arange(48, dtype=np.float32).reshape(8, 2, 3),
        'b': {
            'c': np.full((8,), 2**30 + 1, np.int32),
            'd': np.ones((8, 1), np.float32),
        },
    }
    fn = parallel.pmapped(parallel.total, devices)
    made = parallel.unreplicate(fn(tree))
    expected = jax.tree.map(lambda x: x.sum(axis=0, dtype=x.dtype), tree)
    jax.tree.map(np.testing.assert_array_equal, made, expected)
    text = fn.lower(tree).compile().as_text()
    assert len(re.findall(r'all-reduce(-start)?\(', text)) == 2


def test_alone_a_vote_is_what_was_asked(devices):
    assert parallel.Vote(devices)((1, 15)) == [1, 15]


def test_this_process_owns_all_devices_where_it_is_alone(devices):
    assert parallel.mine(devices[2:5]) == slice(0, 3)


def test_a_gradient_by_replicated_parameters_stays_on_its_device(devices):
    # The trap of shard_map: summed over devices before anybody could clip it.
    params = np.ones((8, 1), np.float32)
    scale = np.arange(8.0, dtype=np.float32).reshape(8, 1)
    fn = parallel.pmapped(jax.grad(lambda p, x: (p * x)[0]), devices)
    assert np.array_equal(fn(params, scale), scale)


@pytest.mark.parametrize(('size', 'share'), [(16, 2), (17, 3), (3, 1)])
def test_deal_splits_in_order_and_pads_at_the_end(size, share):
    array = np.arange(2 * size).reshape(2, size)
    dealt = parallel.deal(array, 8, axis=1, fill=-1)
    assert dealt.shape == (8, 2, share)
    back = np.concatenate(list(dealt), axis=1)
    assert np.array_equal(back[:, :size], array)
    assert np.all(back[:, size:] == -1)


@pytest.mark.parametrize('number', [1, 3, 8])
@pytest.mark.parametrize('size', [5, 8, 17])
def test_the_shares_of_all_devices_are_the_whole(size, number, devices):
    array = np.arange(10.0, 10.0 + 2 * size, dtype=np.float32).reshape(size, 2)
    fn = parallel.pmapped(lambda x: parallel.my_share(x, number), devices[:number])
    part, is_padding = fn(np.broadcast_to(array, (number, *array.shape)))
    kept = np.asarray(part)[~np.asarray(is_padding)]
    assert np.array_equal(kept, array)
    assert part.shape[1] == -(-size // number)
