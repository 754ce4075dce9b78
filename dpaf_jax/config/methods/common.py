"""What the fields of several methods share."""

from dpaf_jax.config.fields import between

OPTIMIZERS = 'adam', 'momentum', 'sgd'
SCHEDULES = 'constant', 'cosine'
SCHEDULE = 'Of the learning rate; cosine falls to 2 % at the end.'
CLIP = 'Bound on the l2 norm of one clipped gradient.'


def ema(default: float) -> float:
    """The field of a moving average's decay."""
    decay: float = between(
        default,
        0.0,
        0.999999,
        'Of the released moving average; 0: the last parameters.',
    )
    return decay
