"""Monte-Carlo attack: the share of synthetic images in a small ball around a record.

Hilprecht, Haerterich and Bernau 2019: section 4.1 (the estimate), 4.2 (distance between
principal components, which they compute on images that are no members) and the median
heuristic for the ball's radius: the median, over records, of the distance to the nearest
synthetic image.
"""

import numpy as np
from sklearn.decomposition import PCA

from dpaf_jax.attack.distances import CHUNK, reduced, squared_distances

COMPONENTS = 40


def scores(
    records: np.ndarray, synthetic: np.ndarray, reference: np.ndarray
) -> dict[str, np.ndarray]:
    """Scores of records, larger for members; arguments as in gan_leaks.scores."""
    basis = reduced(reference)
    number = min(COMPONENTS, *basis.shape)
    pca = PCA(number, svd_solver='randomized', random_state=0).fit(basis)
    made = pca.transform(reduced(synthetic)).astype(np.float32)
    asked = pca.transform(reduced(records)).astype(np.float32)
    blocks = [asked[start : start + CHUNK] for start in range(0, len(asked), CHUNK)]
    least = [squared_distances(block, made).min(axis=1) for block in blocks]
    radius = np.median(np.concatenate(least))
    inside = [
        (squared_distances(block, made) <= radius).mean(axis=1) for block in blocks
    ]
    return {'monte-carlo': np.concatenate(inside).astype(np.float32)}
