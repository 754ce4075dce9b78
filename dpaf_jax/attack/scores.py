"""Scores of records, larger for those that an attacker takes for members.

All see the generator's output alone, and images that nobody trained on.
"""

import warnings

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import euclidean_distances
from sklearn.neural_network import MLPClassifier

from dpaf_jax.attack.distances import CHUNK, nearest, reduced

COMPONENTS = 40  # of the Monte-Carlo attack
HIDDEN, EPOCHS, BATCH, RATE = 256, 50, 64, 3e-3  # of LOGAN's discriminator


def gan_leaks(
    records: np.ndarray, synthetic: np.ndarray, reference: np.ndarray
) -> dict[str, np.ndarray]:
    """GAN-Leaks, full black-box: near a synthetic image is taken for a member.

    Chen, Yu, Zhang and Fritz 2020, sections 5.2 (distance to the nearest sample) and 5.5
    (calibration: how near it is to reference images that nobody trained on).

    Args:
        records: [n, H, W, C] uint8, or rows of a table, as all of them.
        synthetic: [m, H, W, C] uint8.
        reference: [r, H, W, C] uint8, real images that are neither members nor records.

    Returns:
        {name: [n] float32}: 'gan-leaks' and 'gan-leaks calibrated'.
    """
    plain = nearest(records, synthetic).distance
    usual = nearest(records, reference).distance
    return {'gan-leaks': -plain, 'gan-leaks calibrated': usual - plain}


def monte_carlo(
    records: np.ndarray, synthetic: np.ndarray, reference: np.ndarray
) -> dict[str, np.ndarray]:
    """The share of synthetic images in a small ball around a record.

    Hilprecht, Haerterich and Bernau 2019: section 4.1 (the estimate), 4.2 (distance
    between principal components, which they compute on images that are no members) and
    the median heuristic for the ball's radius: the median, over records, of the distance
    to the nearest synthetic image. Arguments as of `gan_leaks`.
    """
    basis = reduced(reference)
    number = min(COMPONENTS, *basis.shape)
    pca = PCA(number, svd_solver='randomized', random_state=0).fit(basis)
    made = pca.transform(reduced(synthetic)).astype(np.float32)
    asked = pca.transform(reduced(records)).astype(np.float32)
    blocks = [asked[start : start + CHUNK] for start in range(0, len(asked), CHUNK)]
    least = [euclidean_distances(block, made).min(axis=1) for block in blocks]
    radius = np.median(np.concatenate(least))
    inside = [
        (euclidean_distances(block, made) <= radius).mean(axis=1) for block in blocks
    ]
    return {'monte-carlo': np.concatenate(inside).astype(np.float32)}


def logan(
    records: np.ndarray, synthetic: np.ndarray, reference: np.ndarray
) -> dict[str, np.ndarray]:
    """LOGAN, black-box: a discriminator between synthetic and reference images.

    Hayes, Melis, Danezis and De Cristofaro 2019, section 4.4: the attacker, who has
    samples of the generator only, trains a discriminator on them. Here what it tells them
    from are reference images, the variant with auxiliary knowledge (section 4.5); a
    network of one hidden layer on reduced pixels. Arguments as of `gan_leaks`.
    """
    number = min(len(synthetic), len(reference))  # as many of each
    x = np.concatenate([reduced(synthetic[:number]), reduced(reference[:number])])
    y = np.arange(len(x)) < number
    # It runs to the end: an attack lives from what the discriminator knows by heart.
    network = MLPClassifier(
        (HIDDEN,),
        batch_size=min(BATCH, len(x)),
        learning_rate_init=RATE,
        max_iter=EPOCHS,
        tol=0.0,
        n_iter_no_change=EPOCHS,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConvergenceWarning)
        network.fit(x, y)
    return {'logan': network.predict_proba(reduced(records))[:, 1].astype(np.float32)}


SCORERS = (gan_leaks, monte_carlo, logan)
