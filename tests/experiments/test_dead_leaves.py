"""The network `leaves`: its pictures, and weights that are what was taught."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.networks.fixed.dead_leaves import pairs
from dpaf_jax.networks.perceptual import leaves
from experiments.dead_leaves import (
    SIDE,
    Body,
    Judge,
    folded,
    loss,
    taught,
    unfolded,
)


@pytest.fixture(scope='module')
def made():
    return np.asarray(
        jax.jit(pairs, static_argnums=(1, 2))(jax.random.key(0), 24, SIDE)
    )


@pytest.mark.slow
def test_a_pair_is_two_pictures_of_one_object(made):
    assert made.shape == (24, 2, SIDE, SIDE, 3)
    assert np.isfinite(made).all() and np.abs(made).max() <= 1
    assert (np.std(made, axis=(2, 3, 4)) > 0.01).mean() > 0.9
    assert not any(np.array_equal(one, other) for one, other in made)


@pytest.mark.slow
def test_the_folded_weights_see_what_the_taught_network_sees(made):
    variables = Judge().init(jax.random.key(1), jnp.zeros((2, SIDE, SIDE, 3)), True)
    params, stats = variables['params'], variables['batch_stats']
    for _ in range(3):  # statistics that are not those of the start
        _, (stats, _) = loss(params, stats, jnp.asarray(made))
    body = {'params': params['body'], 'batch_stats': stats['body']}
    wanted = Body().apply(body, jnp.asarray(made[:, 0]), False)
    weights = folded(params['body'], stats['body'])
    assert {v.dtype for v in weights.values()} == {np.dtype(np.float16)}
    shipped = leaves.load_params()
    assert {n: v.shape for n, v in shipped.items()} == {
        n: v.shape for n, v in weights.items()
    }
    wide = {name: value.astype(np.float32) for name, value in weights.items()}
    seen = leaves.stages(wide, jnp.asarray(made[:, 0]))
    assert [maps.shape[-1] for maps in seen] == [width for width, _ in leaves.STAGES]
    np.testing.assert_allclose(
        seen[-1], wanted, atol=0.02 * float(jnp.abs(wanted).max())
    )


@pytest.mark.slow
def test_who_goes_on_begins_with_what_the_package_sees(made):
    pictures, known = jnp.asarray(made[:, 0]), leaves.load_params()
    shape = (2, SIDE, SIDE, 3)
    untold = Judge().init(jax.random.key(1), jnp.zeros(shape), True)['batch_stats']
    body = {'params': unfolded(known, pictures), 'batch_stats': untold['body']}
    seen, _ = Body().apply(body, pictures, True, mutable=['batch_stats'])
    wanted = leaves.stages(known, pictures)[-1]
    np.testing.assert_allclose(seen, wanted, atol=1e-3 * float(jnp.max(wanted)))


@pytest.mark.slow
@pytest.mark.parametrize('go_on', [False, True])
def test_it_learns(go_on):
    known = leaves.load_params() if go_on else None
    made = taught(steps=2, batch_size=2, seed=0, known=known)
    assert all(np.isfinite(value).all() for value in made.values())


@pytest.mark.slow
def test_the_shipped_network_knows_an_object_again(made):
    """In another pose, light and ground: far above the chance of one in 48."""
    both = jnp.concatenate([jnp.asarray(made[:, 0]), jnp.asarray(made[:, 1])])
    rows = jnp.mean(leaves.stages(leaves.load_params(), both)[-1], axis=(1, 2))
    rows -= jnp.mean(rows, axis=0)
    rows /= jnp.linalg.norm(rows, axis=1, keepdims=True)
    alike = rows @ rows.T - 9 * jnp.eye(len(rows))
    found = jnp.argmax(alike, axis=1) == (jnp.arange(len(rows)) + 24) % 48
    assert float(jnp.mean(found)) > 0.25
