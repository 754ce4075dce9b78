"""How figures of an evaluation are written, in the report and on the terminal."""

from typing import Any

MODEL_NAMES = {
    'wide_resnet': 'Wide ResNet',
    'cnn': 'Small CNN',
    'logistic_regression': 'Logistic regression',
    'adaboost': 'AdaBoost',
    'bagging': 'Bagging',
    'mlp': 'Multi-layer perceptron',
}
FLOOR = {
    'accuracy': 'Always the largest class (floor)',
    'auroc': 'Guessing (floor)',
}


def figure(found: dict[str, Any]) -> str:
    """Mean ± sample deviation over seeds; of one seed the figure alone."""
    mean = f'{float(found["mean"]):.3f}'
    if len(found['values']) < 2:
        return mean
    std = float(found['std'])
    return f'{mean} ± {std:.3f}' if std >= 0.0005 else f'{mean} ± < 0.0005'
