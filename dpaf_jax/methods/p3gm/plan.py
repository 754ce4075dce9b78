"""P3GM's privacy plan: two sums over all records, then DP-SGD."""

from dpaf_jax.config import Config
from dpaf_jax.networks.images import reduction
from dpaf_jax.privacy.budgets import check_batch_size, make_plan
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

PCA, EM, DECODER = 'pca', 'em', 'decoder'
# In the order of config.privacy.budgets: the default's `rest` is the decoder's.
NAMES = PCA, DECODER, EM
REST_ORDER = DECODER, EM, PCA


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Returns:
        Mechanisms `pca`, `em` and `decoder`, the same in both modes.

    Raises:
        UserError: the settings do not fit N or the images, or the budget.
    """
    _check(config, num_examples)
    settings = config.p3gm

    def once(name: str, kind: str) -> Mechanism:
        return Mechanism.bounded_sum(
            name,
            kind,
            config.privacy,
            num_examples,
            batch_size=num_examples,
            l2_sensitivity=1.0,
        )

    decoder = Mechanism.bounded_sum(
        DECODER,
        'sum of clipped gradients, one per singleton',
        config.privacy,
        num_examples,
        batch_size=settings.batch_size,
        l2_sensitivity=settings.l2_clip_norm,
        steps=settings.steps,
    )
    mechanisms = [
        once(PCA, 'sum of products of rows of norm 1 with themselves'),
        once(EM, 'sum of bounded moments of codes by class'),
        decoder,
    ]
    return make_plan(mechanisms, NAMES, REST_ORDER, config.privacy, num_examples, None)


def num_pixels(config: Config) -> int:
    """d, the length of what is projected: of images reduced to a side of at most 32."""
    side = config.data.image_size
    return (side // reduction(side)) ** 2 * config.data.channels


def _check(config: Config, num_examples: int) -> None:
    settings = config.p3gm
    check_batch_size('config.p3gm.batch_size', settings.batch_size, num_examples)
    if settings.dims > (there := num_pixels(config)):
        problem = f'is {settings.dims}, of images with {there} numbers'
        raise UserError('config.p3gm.dims', problem, 'Lower it')
