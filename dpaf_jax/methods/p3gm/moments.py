"""Phase 1 of P3GM: principal directions, then a Gaussian of codes for each class.

    1. `pca`: the sum of x x^T over all records' rows x       -> d' directions
    2. `em`: class-wise sums of (1, z, z z^T) of their codes z -> a mixture of K Gaussians

DP-EM needs many rounds because nobody knows which component a record is of. Here a
component is a class, and the label is part of the record: the first M step is the last, so
one release makes the mixture, with less noise than any number of rounds.

Guarantee: a row has norm at most 1 behind its clip, so its product with itself has Frobenius
norm at most 1; a record's moments are one vector, clipped to norm 1, in its own class's
place. Emptying a record moves either sum by at most 1. The codes that `em` reads are a
function of the record and of the directions, which `pca` has released.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.methods.p3gm.plan import EM, PCA, num_pixels
from dpaf_jax.networks.images import reduced, to_float
from dpaf_jax.privacy.aggregation import aggregate
from dpaf_jax.privacy.clipping import clip_vector
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.privacy.summation import settled
from dpaf_jax.training.batch import ClipBatch

Sums = jax.Array | ExactSum
# Parts of a record's moments, whose squares sum to 1: counts and means need little.
COUNT, MEAN, SECOND = 0.2, 0.4, math.sqrt(0.8)
LEAST_VARIANCE = 0.01  # of a code, in units of what all records have in a direction
LEAST_SHARE = 0.1  # of the records that a class would have by its prior


class Moments(NamedTuple):
    """What phase 1 has released, or will; all of it is noised.

    Attributes:
        basis: [d, d'] directions, divided by the root of the mean square along each.
        means: [K, d'] of codes.
        factors: [K, d', d'] of their covariances F F^T; columns are orthogonal.
    """

    basis: jax.Array
    means: jax.Array
    factors: jax.Array


@dataclasses.dataclass(frozen=True)
class Encoder:
    """The static part of phase 1; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan

    def init(self) -> Moments:
        """Nothing yet."""
        dims, k = self.config.p3gm.dims, self.config.data.num_classes
        basis = jnp.zeros((num_pixels(self.config), dims))
        factors = jnp.tile(jnp.eye(dims), (k, 1, 1))
        return Moments(basis, jnp.zeros((k, dims)), factors)

    def rows(self, images: jax.Array) -> jax.Array:
        """[B, H, W, C] uint8 to [B, d] pixels, each row clipped to norm 1."""
        pixels = (reduced(to_float(images)) + 1) / 2
        flat = pixels.reshape(len(pixels), -1)
        flat = flat / (self.config.p3gm.row_norm * math.sqrt(flat.shape[1]))
        return jax.vmap(lambda row: clip_vector(row, 1.0))(settled(flat))

    def codes(self, moments: Moments, images: jax.Array) -> jax.Array:
        """The encoder's means: [B, H, W, C] uint8 to [B, d'] of bounded norm."""
        projected = jnp.matmul(self.rows(images), moments.basis, precision='highest')
        bound = self._code_bound
        return jax.vmap(lambda code: clip_vector(code, bound))(settled(projected))

    @property
    def _code_bound(self) -> float:
        settings = self.config.p3gm
        return settings.code_norm * math.sqrt(settings.dims)

    def noisy(self, name: str, sums: Sums, key_data: jax.Array) -> jax.Array:
        """The release `pca` or `em`: noise on the sums over devices, once."""
        return noisy_total(sums, key_data, self.plan[name].noise_std)

    # --- pca --------------------------------------------------------------------------

    def products(self, moments: Moments, batch: ClipBatch) -> Sums:
        """This device's pre-noise sum of x x^T, [d, d], of some of the records.

        Sensitivity of the sum over all: 1, see the module. It asks nothing of `moments`.
        """
        del moments
        batch = batch.without_padding()
        rows = self.rows(batch.images[:, 0])
        rows = jnp.where(batch.is_padding_example, 0.0, rows)
        grid = self.plan[PCA].grid
        if grid is None:
            return jnp.matmul(rows.T, rows, precision='highest')
        return grid.outer_sum(rows, rows, 1.0)

    def directed(self, moments: Moments, noisy: jax.Array) -> Moments:
        """Directions of the largest eigenvalues: post-processing."""
        values, vectors = jnp.linalg.eigh((noisy + noisy.T) / 2)
        dims = self.config.p3gm.dims
        # Noise may leave less than nothing to a direction.
        squares = jnp.maximum(values[-dims:] / self.plan.num_examples, 1e-6)
        return moments._replace(basis=vectors[:, -dims:] / jnp.sqrt(squares))

    # --- em ---------------------------------------------------------------------------

    def class_moments(self, moments: Moments, batch: ClipBatch) -> Sums:
        """This device's pre-noise sums [K, 1 + d' + d'^2] of some of the records.

        Sensitivity of the sum over all: 1, see the module.
        """
        batch = batch.without_padding()
        codes = self.codes(moments, batch.images[:, 0]) / self._code_bound
        squares = (codes[:, :, None] * codes[:, None]).reshape(len(codes), -1)
        one = jnp.full((len(codes), 1), COUNT)
        rows = jnp.concatenate([one, MEAN * codes, SECOND * squares], axis=1)
        return aggregate(
            rows,
            batch.labels[:, 0],
            batch.is_padding_example[:, 0],
            self.config.data.num_classes,
            1.0,
            self.plan[EM].grid,
        )

    def mixed(self, moments: Moments, noisy: jax.Array) -> Moments:
        """Each class's mean and covariance, by noisy sums alone: post-processing."""
        dims, bound = self.config.p3gm.dims, self._code_bound
        least = LEAST_SHARE * self.plan.num_examples * jnp.array(self.config.data.prior)
        counts = jnp.maximum(noisy[:, 0] / COUNT, jnp.maximum(least, 1.0))
        means = bound / MEAN * noisy[:, 1 : dims + 1] / counts[:, None]
        seconds = bound**2 / SECOND * noisy[:, dims + 1 :] / counts[:, None]
        seconds = seconds.reshape(-1, dims, dims)
        spread = (seconds + seconds.mT) / 2 - means[:, :, None] * means[:, None]
        values, vectors = jnp.linalg.eigh(spread)
        # Noise makes some negative; none exceeds what the clip leaves.
        values = jnp.clip(values, LEAST_VARIANCE, bound**2)
        return moments._replace(
            means=means, factors=vectors * jnp.sqrt(values)[:, None]
        )
