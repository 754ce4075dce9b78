"""LOGAN, black-box: a discriminator between synthetic and reference images scores records.

Hayes, Melis, Danezis and De Cristofaro 2019, section 4.4: the attacker, who has samples of
the generator only, trains a discriminator on them. Here what it tells them from are
reference images, the variant with auxiliary knowledge (section 4.5); a network of one
hidden layer on reduced pixels.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from dpaf_jax.attack.distances import reduced

HIDDEN, EPOCHS, BATCH, RATE = 256, 50, 64, 3e-3


def scores(
    records: np.ndarray, synthetic: np.ndarray, reference: np.ndarray
) -> dict[str, np.ndarray]:
    """Scores of records, larger for members; arguments as in gan_leaks.scores."""
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
