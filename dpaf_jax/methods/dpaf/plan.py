"""DPAF's privacy plan: which mechanisms a config needs, and how often."""

import dataclasses
import math

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.phase1.labeller import steps_and_rate
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout
from dpaf_jax.privacy.budgets import check_batch_size, make_plan
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.dpaf import LABELLER
from dpaf_jax.runtime.errors import UserError

REST_ORDER = ('conv2', 'dpagg', 'conv1', LABELLER)
WINDOW = 8  # steps of phase 1 in one compiled call, where they are scanned
STEPS = 500  # of DPAGG, where epochs do not say
PUBLISHED_REASON = (
    'Algorithm 1 trains the classifier head without protection, takes per-example '
    'gradients through batch aggregates, and uses one batch for two mechanisms'
)


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Returns:
        Mechanisms with noise and capacity, and what they cost together.

    Raises:
        UserError: the settings do not fit each other, N, or the budget.
    """
    _check(config, num_examples)
    mechanisms = [
        m
        for m in (
            _phase1(config, num_examples) or _conv1_with_d(config, num_examples),
            _conv2(config, num_examples),
            _dpagg(config, num_examples),
        )
        if m is not None
    ]
    names = (_phase1_name(config), 'conv2', 'dpagg')  # as privacy.budgets has them
    return make_plan(
        mechanisms, names, REST_ORDER, config.privacy, num_examples, PUBLISHED_REASON
    )


def _clip_bound(config: Config, l2_clip_norm: float, grouped: bool) -> float:
    # A group's content may change to anything, a singleton only to nothing.
    return config.privacy.bound(2 * l2_clip_norm if grouped else l2_clip_norm)


def _phase1_name(config: Config) -> str:
    return LABELLER if config.dpaf.classifier.private == LABELLER else 'conv1'


def _phase1(config: Config, num_examples: int) -> Mechanism | None:
    if not _trains_phase1(config):
        return None
    c, published = config.dpaf.classifier, config.privacy.as_published
    grouped = c.unit == 'group' and not published
    size = float(config.dpaf.batch_size if published else c.batch_size)
    if c.sampling_prob and not published:
        size = c.sampling_prob * num_examples
    prob = size / num_examples
    steps = c.epochs / prob or steps_and_rate(config, num_examples)[0]
    return Mechanism(
        name=_phase1_name(config),
        kind=f'sum of clipped gradients, one per {c.unit if grouped else "singleton"}',
        sampling_prob=prob,
        l2_sensitivity=_clip_bound(config, c.l2_clip_norm, grouped),
        steps=_whole_windows(steps, WINDOW),
        expected_batch_size=size,
        capacity=math.ceil(size),
        num_groups=c.num_groups if grouped else 1,
    )


def _dpagg(config: Config, num_examples: int) -> Mechanism:
    dpaf, k = config.dpaf, config.data.num_classes
    pure = dpaf.batches == 'class_pure'
    aggregates = k if pure else 1
    prob = dpaf.batch_size * aggregates / num_examples if dpaf.batch_size else 1.0
    steps = math.ceil(dpaf.epochs / prob - 1e-9) if dpaf.epochs else STEPS
    turns, shared_by = class_turns(config), 1
    if prob < 1:  # whole windows of DPAGG steps, and every class the same turns
        steps = _whole_windows(steps, dpaf.asymmetry)
        shared_by = -(-dpaf.asymmetry // turns)  # turns of a class in a window
    return Mechanism(
        name='dpagg',
        kind='sum of bounded rows, one aggregate per class'
        if pure
        else 'sum of bounded rows',
        sampling_prob=prob,
        l2_sensitivity=config.privacy.bound(make_tap_layout(config).bound),
        steps=steps,
        expected_batch_size=prob * num_examples * (1 / turns),
        capacity=num_examples if prob == 1 else dpaf.batch_size,
        shared_by=shared_by,
    )


def class_turns(config: Config) -> int:
    """DPAGG steps until every class has had one; 1 where all are at once, or mixed."""
    at_once = config.dpaf.classes_per_step
    if config.dpaf.batches == 'mixed' or not at_once:
        return 1
    return config.data.num_classes // at_once


def dpagg_steps(config: Config, dpagg: Mechanism) -> int:
    """Steps of the whole run: each is a turn of some classes, or of all."""
    return dpagg.steps * class_turns(config)


def _conv2(config: Config, num_examples: int) -> Mechanism | None:
    if not _trains_conv2(config):
        return None
    c, dpaf, published = config.dpaf.conv2, config.dpaf, config.privacy.as_published
    grouped = c.gradient == 'group' and not published
    size = dpaf.asymmetry * dpaf.batch_size if published else c.batch_size
    of = ' of conv1 and conv2* as one' if c.with_conv1 else ''
    return Mechanism(
        name='conv2',
        kind=f'sum of clipped gradients{of}, one per '
        + ('cotangent' if published else c.gradient),
        sampling_prob=size / num_examples,
        l2_sensitivity=_clip_bound(config, c.l2_clip_norm, grouped),
        steps=dpagg_steps(config, _dpagg(config, num_examples)) // dpaf.asymmetry,
        expected_batch_size=float(size),
        capacity=size,
        num_groups=c.num_groups if grouped else 1,
    )


def _conv1_with_d(config: Config, num_examples: int) -> Mechanism | None:
    """conv1's own updates in phase 2: as many as conv2*'s, of draws like its (Table 5)."""
    conv2, classifier = _conv2(config, num_examples), config.dpaf.classifier
    if classifier.private != 'discriminator' or conv2 is None:
        return None
    bound = _clip_bound(config, classifier.l2_clip_norm, conv2.num_groups > 1)
    return dataclasses.replace(
        conv2, name='conv1', l2_sensitivity=bound, kind=f'{conv2.kind}, by conv1'
    )


def _whole_windows(steps: float, window: int) -> int:
    return window * math.ceil(steps / window - 1e-9)


def _check(config: Config, num_examples: int) -> None:
    dpaf, k = config.dpaf, config.data.num_classes
    _check_published(config)
    make_tap_layout(config)
    aggregates = k if dpaf.batches == 'class_pure' else 1
    counts = _trains_phase1(config) and not dpaf.classifier.sampling_prob
    for field, size, used in (
        ('batch_size', dpaf.batch_size * aggregates, True),
        ('classifier.batch_size', dpaf.classifier.batch_size, counts),
        ('conv2.batch_size', dpaf.conv2.batch_size, _trains_conv2(config)),
    ):
        if used:
            check_batch_size(f'config.dpaf.{field}', size, num_examples)
    if dpaf.classes_per_step and (k % dpaf.classes_per_step or dpaf.batches == 'mixed'):
        raise UserError(
            'config.dpaf.classes_per_step',
            f'is {dpaf.classes_per_step}',
            f"Use a divisor of num_classes = {k} and batches = 'class_pure', or 0",
        )
    _check_classifier(config)
    _check_groups(
        'classifier', dpaf.classifier.unit == 'group', dpaf.classifier.num_groups
    )
    _check_groups('conv2', dpaf.conv2.gradient == 'group', dpaf.conv2.num_groups)
    _check_conv2(config)
    _check_losses(config)
    _check_schedule(config, num_examples)


def _trains_phase1(config: Config) -> bool:
    """Whether phase 1 learns from private images."""
    learns = config.dpaf.classifier.private
    if learns == 'discriminator':
        return False
    alone = not config.dpaf.conv2.with_conv1
    return learns != 'none' or (config.privacy.as_published and alone)


def _trains_conv2(config: Config) -> bool:
    """Whether conv2* learns from private images."""
    return config.dpaf.conv2.gradient != 'none' or config.privacy.as_published


def _check_published(config: Config) -> None:
    """The paper has mixed batches of a fixed size, and keeps no classifier."""
    dpaf = config.dpaf
    is_printed = dpaf.batches == 'mixed' and dpaf.batch_size
    if config.privacy.as_published and (
        not is_printed or dpaf.classifier.private == LABELLER
    ):
        raise UserError(
            'config.privacy.guarantee',
            "is 'as_published', but these settings are not the paper's (batches by class, "
            'one release of all, a labeller)',
            "Take a config's ':printed', such as configs/mnist.py:printed",
        )


def _check_classifier(config: Config) -> None:
    classifier = config.dpaf.classifier
    if classifier.private == LABELLER:
        if classifier.unit == 'group':
            raise UserError(
                'config.dpaf.classifier.unit',
                "is 'group', but a labeller learns from single records",
                "Set it to 'singleton'",
            )
        return
    fields = ['epochs', 'learning_rate'] if _trains_phase1(config) else []
    if classifier.private == 'discriminator':
        fields = ['learning_rate']  # of conv1, as often as conv2*
    for field in fields:
        if not getattr(classifier, field):
            raise UserError(
                f'config.dpaf.classifier.{field}',
                'is 0, for which only a labeller has a rule',
                "Set it above 0, or private to 'labeller'",
            )


def _check_conv2(config: Config) -> None:
    conv2, private = config.dpaf.conv2, config.dpaf.classifier.private
    if conv2.gradient == 'group' and config.dpaf.batches == 'class_pure':
        raise UserError(
            'config.dpaf.conv2.gradient',
            "is 'group', which holds all classes, but the head judges class by class",
            "Set it to 'singleton', 'cotangent' or 'none', or batches to 'mixed'",
        )
    if private == 'discriminator' and not _trains_conv2(config):
        raise UserError(
            'config.dpaf.classifier.private',
            "is 'discriminator', but conv2* does not learn, and conv1 learns as it does",
            "Set config.dpaf.conv2.gradient to another than 'none', or private to 'none'",
        )
    if conv2.with_conv1 and (
        conv2.gradient == 'none' or private in ('all', 'conv1', 'discriminator')
    ):
        raise UserError(
            'config.dpaf.conv2.with_conv1',
            'is True, but conv2* does not learn, or conv1 learns by itself',
            "Set config.dpaf.classifier.private to 'none' and conv2.gradient to another",
        )


def _check_groups(part: str, used: bool, number: int) -> None:
    if used and number < 2:
        raise UserError(
            f'config.dpaf.{part}.num_groups', f'is {number}', 'Use at least 2 groups'
        )


def _check_schedule(config: Config, num_examples: int) -> None:
    dpaf, dpagg = config.dpaf, _dpagg(config, num_examples)
    if dpagg.sampling_prob == 1 and dpaf.n_critic != 1:
        raise UserError(
            'config.dpaf.n_critic',
            f'is {dpaf.n_critic}, but DPAGG sees every image at once',
            'Set it to 1: each release is followed by generator_steps steps',
        )
    if dpaf.batch_size and not dpaf.generator_steps:
        raise UserError(
            'config.dpaf.generator_steps',
            'is 0, which is for one aggregate of all images',
            'Set it to 1, or batch_size to 0',
        )
    steps = dpagg_steps(config, dpagg)
    if _trains_conv2(config) and steps < dpaf.asymmetry:
        raise UserError(
            'config.dpaf.conv2.gradient',
            f'is {dpaf.conv2.gradient!r}, but conv2* is updated every {dpaf.asymmetry} '
            f'DPAGG steps and there are {steps}',
            "Set it to 'none', lower asymmetry, or raise epochs",
        )


def _check_losses(config: Config) -> None:
    generator, taps = config.dpaf.generator, make_tap_layout(config)
    needs_conv2 = generator.adversarial or _trains_conv2(config)
    if needs_conv2 and 'conv2' not in taps:
        raise UserError(
            'config.dpaf.taps',
            f'is {config.dpaf.taps!r}, but the discriminator reads conv2',
            "Add 'conv2', or use loss_match alone with conv2.gradient = 'none'",
        )
    if LABELLER in taps and config.dpaf.classifier.private != LABELLER:
        raise UserError(
            'config.dpaf.taps',
            f'is {config.dpaf.taps!r}, but no labeller is learnt',
            "Set config.dpaf.classifier.private to 'labeller', or tap something else",
        )
    if not generator.adversarial and not generator.loss_match:
        raise UserError(
            'config.dpaf.generator',
            'has no loss with a weight above 0',
            'Set loss_single, loss_aggregate or loss_match',
        )
    if generator.loss_smooth and not generator.loss_match:
        raise UserError(
            'config.dpaf.generator.loss_smooth',
            f'is {generator.loss_smooth}, but no aggregates are matched',
            'Set it to 0, or loss_match above 0',
        )
    for name in ('warp', 'warp_of_few'):
        asked = getattr(generator, name)
        if asked and config.dpaf.classifier.private != LABELLER:
            raise UserError(
                f'config.dpaf.generator.{name}',
                f'is {asked}, but no labeller looks at images once they are bent',
                "Set it to 0, or config.dpaf.classifier.private to 'labeller'",
            )
    if generator.whitenings and (
        not generator.loss_match
        or config.dpaf.batches != 'class_pure'
        or config.dpaf.batch_size
        or _trains_conv2(config)
    ):
        raise UserError(
            'config.dpaf.generator.whitenings',
            f'is {generator.whitenings}, but no class aggregates of all images are matched',
            "Set it to 0; or loss_match, batches = 'class_pure', batch_size = 0 and "
            "conv2.gradient = 'none'",
        )
