"""Downstream utility of a synthetic table: AUROC on real test rows.

The protocol of PATE-GAN and of G-PATE's table 1a: logistic regression, AdaBoost, bagging and
a multi-layer perceptron, trained on synthetic rows. Settings are scikit-learn's, none
chosen on real rows. As with images, the figures belong to the run's report alone.
"""

import logging
from typing import Any

import numpy as np
from sklearn import ensemble, linear_model, metrics, neural_network

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation.outcome import Labelled, summary
from dpaf_jax.runtime.progress import ProgressFn

FLOOR = 0.5  # the AUROC of guessing
MODELS = {
    'logistic_regression': lambda seed: linear_model.LogisticRegression(
        max_iter=1000, random_state=seed
    ),
    'adaboost': lambda seed: ensemble.AdaBoostClassifier(random_state=seed),
    'bagging': lambda seed: ensemble.BaggingClassifier(random_state=seed),
    'mlp': lambda seed: neural_network.MLPClassifier(random_state=seed),
}


def evaluate(
    source: Labelled,
    test: Labelled,
    num_classes: int,
    config: EvaluationConfig,
    on_progress: ProgressFn = lambda done: None,
) -> dict[str, dict[str, Any]]:
    """Trains each classifier `config.seeds` times and measures its AUROC.

    Args:
        source: N synthetic rows.
        test: M rows of the real test split.
        num_classes: K; above 2 the mean over classes of one against the rest.
        config: seeds; run i uses seed i.
        on_progress: given how many models are trained, of `total_models`.

    Returns:
        For each model `values`, one AUROC a seed, their `mean` and `std`; nan where the
        test rows lack a class, 0.5 where the synthetic rows have one class alone (which a
        noisy histogram may give), or AdaBoost refuses them: nothing is ranked then.
    """
    rows, tests = (x.reshape(len(x), -1) for x in (source.images, test.images))
    results, done = {}, 0
    for name, make in MODELS.items():
        values = []
        for run in range(config.seeds):
            model = _fitted(make(run), rows, source.labels)
            values.append(
                auroc(model, tests, test.labels, num_classes) if model else FLOOR
            )
            done += 1
            on_progress(done)
        results[name] = summary(values)
    return results


def _fitted(model: Any, rows: np.ndarray, labels: np.ndarray) -> Any:
    """The model, or None where it cannot be fitted."""
    if not np.ptp(labels):
        return None
    try:
        return model.fit(rows, labels)
    except ValueError as error:
        if not isinstance(model, ensemble.AdaBoostClassifier):
            raise  # AdaBoost alone refuses what it cannot learn, such as constant rows
        logging.warning('%s: %s', type(model).__name__, error)
        return None


def total_models(config: EvaluationConfig) -> int:
    """The models of all seeds: the last number that `on_progress` sees."""
    return len(MODELS) * config.seeds


def auroc(model: Any, rows: np.ndarray, labels: np.ndarray, num_classes: int) -> float:
    """Mean over classes (the second alone, of two) of the area under its ROC curve."""
    scores = np.zeros((len(rows), num_classes))
    scores[:, model.classes_] = model.predict_proba(rows)
    wanted = [1] if num_classes == 2 else range(num_classes)
    areas = [metrics.roc_auc_score(labels == k, scores[:, k]) for k in wanted]
    return float(np.mean(areas))
