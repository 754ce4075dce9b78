"""How much of what is seen features tell: known shares are found."""

import numpy as np
import safetensors.numpy

from dpaf_jax.networks.perceptual import leaves
from experiments.what_features_see import (
    batched,
    candidates,
    explained,
    joined,
    told_apart,
)


def test_all_is_told_by_what_is_seen_itself_and_nothing_by_chance():
    rng = np.random.default_rng(0)
    seen = rng.standard_normal((400, 4)).astype(np.float32)
    turned = seen @ np.linalg.qr(rng.standard_normal((4, 4)))[0].astype(np.float32)
    other = rng.standard_normal((400, 4)).astype(np.float32)
    assert explained(turned + 3, seen) > 0.99  # whatever is added to all
    assert explained(other, seen) < 0.05
    half = np.concatenate([turned[:, :2], other[:, :2]], axis=1)
    assert 0.3 < explained(half, seen) < 0.7


def test_weights_of_a_file_stand_beside_those_that_are_shipped(tmp_path):
    path = tmp_path / 'mine.safetensors'
    params = leaves.load_params()
    safetensors.numpy.save_file({n: -v for n, v in params.items()}, path)
    found = candidates([str(path)], (16, 16, 1))
    assert {'fourier', 'wavelet', 'shape', 'texture', 'kinds'} < {*found}
    assert [*found][-2:] == ['perceptual', 'mine']
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 1), dtype=np.uint8)
    mine, shipped = (batched(found[name], images) for name in ('mine', 'leaves'))
    assert 2 * mine.shape[1] == shipped.shape[1]  # the tap has squares, too
    assert not np.allclose(mine, shipped[:, : mine.shape[1]])


def test_classes_are_told_apart_by_what_depends_on_them_alone():
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    noise = rng.standard_normal((400, 4))
    assert told_apart(noise + 6 * labels[:, None], labels) == 1
    assert 0.3 < told_apart(noise, labels) < 0.7
    both = joined([1e6 * noise, noise + 6 * labels[:, None]])  # units do not matter
    assert told_apart(both, labels) > 0.95
