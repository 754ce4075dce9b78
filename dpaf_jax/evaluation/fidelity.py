"""How near synthetic images are to real ones, by features of a public network.

All figures are of samples: none is private, none is covered by epsilon, and the Fréchet
distance is too large by a share that goes as 1 / n. So figures are comparable only with the
same number of images on both sides, and with `floor`, real images in place of synthetic ones.

Two networks may look: EfficientNet-Lite0, whose weights are a package, and the InceptionV3 of
FID and Inception score, whose weights are a file that a user names. Their figures have names
of their own, and so have those of an InceptionV3 with other weights.

No figure stands alone. The Fréchet distance knows means and covariances: it is large for
faint noise on a black ground, small for a hundred training images repeated. Recall finds
the repetition, precision the noise.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.networks.perceptual import efficientnet, inception
from dpaf_jax.networks.perceptual.batches import Features
from dpaf_jax.runtime.progress import ProgressFn, added_up

PRECISION_NEIGHBOURS = 3  # Kynkäänniemi et al. 2019, section 3.1
COVERAGE_NEIGHBOURS = 5  # Naeem et al. 2020, section 4.1
SPLITS = 10  # of the Inception score
BLOCK = 1000  # rows of a matrix of distances that are made at once
LEAST = 2 * SPLITS  # images of a side
ENOUGH = 1280  # as many as there are features; of InceptionV3 there are 2048
EFFICIENTNET, INCEPTION = efficientnet.NAME, 'inception'
LookFn = Callable[[np.ndarray, ProgressFn], Features]
# Behind the names of figures that are not of the published weights.
OTHER = '_other_weights'


class Manifold(NamedTuple):
    """Shares in [0, 1], but density, which may exceed 1.

    Attributes:
        precision: of synthetic images that lie among real ones.
        recall: of real images that lie among synthetic ones.
        density: as precision, by how many real neighbourhoods hold an image.
        coverage: of real images whose neighbourhood holds a synthetic one.
    """

    precision: float
    recall: float
    density: float
    coverage: float


class Reference:
    """Real images to compare with; what networks say of them is kept for the next time.

    Args:
        images: [N, H, W, C] uint8, C = 1 or 3.
        weights: of InceptionV3; None: no FID and no Inception score.
    """

    def __init__(self, images: np.ndarray, weights: inception.Weights | None = None):
        self.images, self.weights = images, weights
        self._kept: dict[tuple[str, int], Features] = {}

    @property
    def are_weights_published(self) -> bool:
        """Whether there are weights that define FID and Inception score."""
        return self.weights is not None and self.weights.are_published

    @property
    def networks(self) -> dict[str, LookFn]:
        """Those that look; EfficientNet-Lite0 where it is installed, or nothing else is."""
        made: dict[str, LookFn] = {}
        if self.weights is None or efficientnet.is_installed():
            made[EFFICIENTNET] = efficientnet.features
        if self.weights is not None:
            made[INCEPTION] = functools.partial(inception.features, self.weights)
        return made

    def num_to_see(self, num: int) -> int:
        """Images of both sides that pass through a network where `num` are compared."""
        return sum(
            num + num * ((name, num) not in self._kept) for name in self.networks
        )

    def features(self, name: str, num: int, on_batch: ProgressFn) -> Features:
        """What a network says of `num` of the images, as `drawn` chooses them."""
        if (name, num) not in self._kept:
            seen = self.networks[name](drawn(self.images, num), on_batch)
            self._kept[name, num] = seen
        return self._kept[name, num]


def evaluate(
    reference: Reference,
    synthetic_images: np.ndarray,
    num: int,
    neighbours: int = PRECISION_NEIGHBOURS,
    on_progress: ProgressFn = lambda num: None,
) -> dict[str, float]:
    """Every figure of this module.

    Args:
        reference: real images.
        synthetic_images: [M, H, W, C] uint8.
        num: images that are compared, of each side; all, if it has fewer. They are drawn by
            a fixed key, so that the same images give the same figures.
        neighbours: k of precision and recall.
        on_progress: given how many images have passed, of `reference.num_to_see`.

    Returns:
        What `compare` finds, but with weights of InceptionV3 only where EfficientNet-Lite0 is
        installed; with them also what `standard` finds. Always `num_real` and
        `num_synthetic`.

    Raises:
        UserError: EfficientNet-Lite0 is not installed, and there are no other weights.
        ValueError: a side has too few images.
    """
    made = drawn(synthetic_images, num)
    found: dict[str, float] = {}
    on_batch = added_up(on_progress)
    for name, look in reference.networks.items():
        real = reference.features(name, num, on_batch)
        synthetic = look(made, on_batch)
        if name == EFFICIENTNET:
            found |= compare(real, synthetic, neighbours)
        else:
            found |= standard(
                real, synthetic, is_published=reference.are_weights_published
            )
    num_real = min(num, len(reference.images))
    return found | {'num_real': num_real, 'num_synthetic': len(made)}


def standard(
    real: Features, synthetic: Features, *, is_published: bool
) -> dict[str, float]:
    """FID and Inception score, of features of InceptionV3.

    FID is the Fréchet distance over all images of both sides (Heusel et al. 2017). The
    Inception score is the mean of ten parts of the synthetic images, drawn by a fixed key, as
    is usual (Salimans et al. 2016).

    Args:
        real: `pooled` [N, 2048], N >= 2.
        synthetic: `pooled` [M, 2048], `probabilities` [M, 1008], M >= 10.
        is_published: whether the weights are those that both figures are defined by.

    Returns:
        `fid`, `inception_score`, and its deviation over the parts `inception_score_std`; with
        other weights the same names with `_other_weights` behind them.
    """
    score, spread = inception_score(synthetic.probabilities)
    found = {
        'fid': frechet_distance(real.pooled, synthetic.pooled),
        'inception_score': score,
        'inception_score_std': spread,
    }
    return found if is_published else {f'{n}{OTHER}': v for n, v in found.items()}


def drawn(images: np.ndarray, num: int) -> np.ndarray:
    """`num` of the images, by a fixed key; all, if there are no more."""
    chosen = np.random.default_rng(0).permutation(len(images))[:num]
    return np.asarray(images[np.sort(chosen)])


def compare(
    real: Features, synthetic: Features, neighbours: int = PRECISION_NEIGHBOURS
) -> dict[str, float]:
    """What features of EfficientNet-Lite0 say.

    Args:
        real: `pooled` [N, D].
        synthetic: `pooled` [M, D], `probabilities` [M, K].
        neighbours: k of precision and recall.

    Returns:
        `fd_efficientnet_lite0`, `precision`, `recall`, `density`, `coverage`,
        `is_efficientnet_lite0`, its deviation over ten parts `is_std`, and `num_real` and
        `num_synthetic`.

    Raises:
        ValueError: a side has fewer images than these figures need.
    """
    for name, side in (('real', real), ('synthetic', synthetic)):
        if len(side.pooled) < least(neighbours):
            raise ValueError(
                f'{len(side.pooled)} {name} images; at least {least(neighbours)} are needed'
            )
    score, spread = inception_score(synthetic.probabilities)
    return {
        f'fd_{efficientnet.NAME}': frechet_distance(real.pooled, synthetic.pooled),
        **manifold(real.pooled, synthetic.pooled, neighbours)._asdict(),
        f'is_{efficientnet.NAME}': score,
        'is_std': spread,
        'num_real': len(real.pooled),
        'num_synthetic': len(synthetic.pooled),
    }


def least(neighbours: int) -> int:
    """Images of a side that these figures need."""
    return max(LEAST, neighbours + 1)


def few_images(found: dict[str, float]) -> str:
    """Warns of figures that rest on few images; '' where there are enough.

    With fewer images than features a covariance is singular: the Fréchet distance of two
    samples of the same images is then far from 0.

    Args:
        found: as `evaluate` gives it.
    """
    names = {'num_real': 'real', 'num_synthetic': 'synthetic'}
    counts = {side: found[name] for name, side in names.items() if name in found}
    few = min(counts, key=counts.__getitem__, default='')
    enough = inception.WIDTH if {'fid', f'fid{OTHER}'} & found.keys() else ENOUGH
    if not few or counts[few] >= enough:
        return ''
    return (
        f'Fidelity rests on {counts[few]} {few} images, fewer than the {enough} features: '
        'the distance is much too large, the other figures are rough.'
    )


def frechet_distance(real: np.ndarray, synthetic: np.ndarray) -> float:
    """||m_1 - m_2||^2 + tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)), in float64.

    The root's trace is that of (S_1^(1/2) S_2 S_1^(1/2))^(1/2), which is symmetric: exact
    also where covariances are singular, with fewer images than features.

    Args:
        real: [N, D], N >= 2.
        synthetic: [M, D], M >= 2.

    Returns:
        The distance of the two Gaussians with these means and covariances, at least 0.

    References:
        Heusel et al. 2017, equation 6.
    """
    (mean, cov), (other_mean, other_cov) = (
        (x.mean(axis=0), np.cov(x, rowvar=False, ddof=1).reshape(x.shape[1], -1))
        for x in (real.astype(np.float64), synthetic.astype(np.float64))
    )
    values, vectors = np.linalg.eigh(cov)
    root = vectors * _root(values)
    both = np.linalg.eigvalsh(root.T @ other_cov @ root)
    trace = np.trace(cov) + np.trace(other_cov) - 2 * _root(both).sum()
    return float(max(0.0, np.sum((mean - other_mean) ** 2) + trace))


def _root(values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(values, 0))


def inception_score(probabilities: np.ndarray) -> tuple[float, float]:
    """The exponential of the mean divergence of p(y | x) from p(y), over ten parts.

    Args:
        probabilities: [N, K], N >= 10; rows sum to 1.

    Returns:
        Mean and standard deviation (ddof = 0, as the field has it) over the parts; between
        1 and K.

    References:
        Salimans et al. 2016, section 4.
    """
    scores = []
    shuffled = np.random.default_rng(0).permutation(probabilities.astype(np.float64))
    for part in np.array_split(shuffled, SPLITS):
        log_ratio = np.log(np.maximum(part, 1e-30)) - np.log(
            np.maximum(part.mean(axis=0), 1e-30)
        )
        scores.append(np.exp((part * log_ratio).sum(axis=1).mean()))
    return float(np.mean(scores)), float(np.std(scores))


def manifold(
    real: np.ndarray, synthetic: np.ndarray, neighbours: int = PRECISION_NEIGHBOURS
) -> Manifold:
    """Precision, recall, density and coverage.

    An image's neighbourhood is the ball that reaches to its k-th nearest of its own side,
    without itself: `neighbours` for precision and recall, 5 for density and coverage.

    Args:
        real: [N, D] float32, N > 5.
        synthetic: [M, D] float32, M > 5.
        neighbours: k >= 1, below N and M.

    References:
        Kynkäänniemi et al. 2019, equations 1 to 3; Naeem et al. 2020, equations 6 and 7.
    """
    centre = real.mean(axis=0)  # squares of long vectors would cost digits
    r, s = (jnp.asarray(x - centre) for x in (real, synthetic))
    most = max(neighbours, COVERAGE_NEIGHBOURS)
    r_radii, s_radii = (np.asarray(_radii(x, most)) for x in (r, s))
    narrow, wide = r_radii[:, neighbours - 1], r_radii[:, COVERAGE_NEIGHBOURS - 1]
    reach = s_radii[:, neighbours - 1]
    hits, inside, recalled, covered = [], [], [], np.zeros(len(r), bool)
    for start in range(0, len(s), BLOCK):
        block = slice(start, start + BLOCK)
        distances = np.asarray(_distances(s[block], r))
        inside.append((distances <= narrow).any(axis=1))
        within = distances <= wide
        hits.append(within.sum(axis=1))
        covered |= within.any(axis=0)
        recalled.append((distances <= reach[block, None]).any(axis=0))
    return Manifold(
        precision=float(np.concatenate(inside).mean()),
        recall=float(np.any(recalled, axis=0).mean()),
        density=float(np.concatenate(hits).mean() / COVERAGE_NEIGHBOURS),
        coverage=float(covered.mean()),
    )


def _radii(x: jax.Array, most: int) -> np.ndarray:
    """[N, most]: squared distance to the nearest others, in rising order."""
    found = []
    for start in range(0, len(x), BLOCK):
        rows = jnp.arange(start, min(start + BLOCK, len(x)))
        distances = np.array(_distances(x[rows], x))
        distances[np.arange(len(rows)), np.asarray(rows)] = np.inf  # itself
        found.append(
            np.sort(np.partition(distances, most - 1, axis=1)[:, :most], axis=1)
        )
    return np.concatenate(found)


@functools.partial(jax.jit, inline=True)
def _distances(a: jax.Array, b: jax.Array) -> jax.Array:
    """[n, m]: squared Euclidean distances, at least 0."""
    products = jnp.matmul(a, b.T, precision='highest')
    return jnp.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * products, 0)
