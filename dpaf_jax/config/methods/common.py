"""What the fields of several methods share."""

from dpaf_jax.config.fields import between

OPTIMIZERS = 'adam', 'momentum', 'sgd'
SCHEDULES = 'constant', 'cosine'
SCHEDULE = 'Schedule of the learning rate; cosine: it falls to 2 % at the end.'
CLIP = "Clipping bound on the l2 norm of each record's gradient."
RATE = 'Learning rate of the {} (Adam).'
FALLING_RATE = 'Learning rate of the {} (Adam), falling to 2 % along a cosine.'


def ema(default: float) -> float:
    """The field of a moving average's decay."""
    decay: float = between(
        default,
        0.0,
        0.999999,
        'Decay of the released moving average of parameters; 0: the last parameters.',
    )
    return decay
