"""Classifiers that are no neural networks on minibatches: scikit-learn's, and XGBoost.

Which ones, and their settings where they are not the library's own, are those of the
evaluation that GS-WGAN, DP-MERF and DPBA-WGAN share (`synth_data_benchmark.py` of DP-MERF).
Three differ, for time or since scikit-learn has moved on: the linear SVC has the squared hinge
in its primal form, AdaBoost is SAMME, the perceptron stops early as DPBA-WGAN's (section 5.1).
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import (
    discriminant_analysis,
    ensemble,
    naive_bayes,
    neural_network,
    svm,
    tree,
)

from dpaf_jax.evaluation.outcome import Labelled, Outcome, summarised

XGBOOST = 'xgboost'


def _lda(seed: int) -> Any:
    del seed
    return discriminant_analysis.LinearDiscriminantAnalysis(
        solver='eigen', shrinkage=0.5
    )


def _mlp(seed: int) -> Any:
    return neural_network.MLPClassifier(
        batch_size=256, early_stopping=True, max_iter=500, random_state=seed
    )


def _xgboost(seed: int) -> Any:
    import xgboost  # an extra

    return xgboost.XGBClassifier(
        n_estimators=50, colsample_bytree=0.1, random_state=seed
    )


MODELS: dict[str, Callable[[int], Any]] = {
    'mlp': _mlp,
    'random_forest': lambda seed: ensemble.RandomForestClassifier(
        class_weight='balanced', random_state=seed
    ),
    'gaussian_nb': lambda seed: naive_bayes.GaussianNB(),
    'bernoulli_nb': lambda seed: naive_bayes.BernoulliNB(binarize=0.5),
    'linear_svc': lambda seed: svm.LinearSVC(dual=False, tol=1e-2, random_state=seed),
    'decision_tree': lambda seed: tree.DecisionTreeClassifier(
        class_weight='balanced', random_state=seed
    ),
    'lda': _lda,
    'adaboost': lambda seed: ensemble.AdaBoostClassifier(
        n_estimators=100, random_state=seed
    ),
    'bagging': lambda seed: ensemble.BaggingClassifier(
        n_estimators=20, max_samples=0.1, random_state=seed
    ),
    'gradient_boosting': lambda seed: ensemble.GradientBoostingClassifier(
        n_estimators=50, subsample=0.1, random_state=seed
    ),
    XGBOOST: _xgboost,
}
# What scikit-learn raises for images that a model cannot be fitted to.
CANNOT_FIT = (ValueError, np.linalg.LinAlgError)
DRAWS_NOTHING = ('gaussian_nb', 'bernoulli_nb', 'linear_svc', 'lda')  # one run is all


def installed() -> list[str]:
    """The models whose library is there."""
    there = importlib.util.find_spec(XGBOOST) is not None
    return [name for name in MODELS if there or name != XGBOOST]


def evaluate(
    source: Labelled,
    test: Labelled,
    num_classes: int,
    seeds: int,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, dict[str, Any]]:
    """Trains each installed model on synthetic images and tests it on real ones.

    Args:
        source: N synthetic images, of at least two classes.
        test: M images of the real test split.
        num_classes: K.
        seeds: trainings of each model that draws random numbers.
        tell: is given a line before each training, and where one fails.

    Returns:
        By model what `outcome.summarised` makes of its seeds; without those that no such
        images can be learnt by, as where all images of a class are the same.
    """
    pixels, tests = (
        x.reshape(len(x), -1).astype(np.float32) / 255
        for x in (source.images, test.images)
    )
    # XGBoost wants labels without a gap.
    present, dense = np.unique(source.labels, return_inverse=True)
    results = {}
    for name in installed():
        outcomes = []
        for seed in range(1 if name in DRAWS_NOTHING else seeds):
            tell(f'training {name}')
            model = MODELS[name](seed)
            if name == 'mlp' and _too_few_to_hold_out(dense):
                model.set_params(early_stopping=False)
            try:
                model.fit(pixels, dense)
            except CANNOT_FIT as error:
                tell(f'no figure for {name}: {error}')
                break
            outcomes.append(Outcome(present[model.predict(tests)]))
        else:
            results[name] = summarised(outcomes, test.labels, num_classes)
    return results


def _too_few_to_hold_out(labels: np.ndarray) -> bool:
    """Whether a tenth cannot have an image of each class, as early stopping needs."""
    counts = np.bincount(labels)
    return bool(counts.min() < 2 or len(labels) / 10 < len(counts))
