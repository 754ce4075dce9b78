"""DPAF's privacy plan: which mechanisms a config needs, and how often."""

import dataclasses
import math

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.checks import (
    check,
    check_schedule,
    trains_conv2,
    trains_phase1,
)
from dpaf_jax.methods.dpaf.phase1.labeller import steps_and_rate
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout
from dpaf_jax.privacy.budgets import make_plan
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.dpaf import LABELLER

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
    check(config, num_examples)
    dpagg = _dpagg(config, num_examples)
    check_schedule(config, dpagg, dpagg_steps(config, dpagg))
    mechanisms = [
        m
        for m in (
            _phase1(config, num_examples) or _conv1_with_d(config, num_examples),
            _conv2(config, num_examples),
            dpagg,
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
    if not trains_phase1(config):
        return None
    c, published = config.dpaf.classifier, config.privacy.as_published
    grouped = c.unit == 'group' and not published
    size = float(config.dpaf.batch_size if published else c.batch_size)
    if c.sampling_prob and not published:
        size = c.sampling_prob * num_examples
    prob = size / num_examples
    if published:  # lines 1 and 6: both phases go over the same batches
        steps = float(_dpagg(config, num_examples).steps)
    else:
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
    if not trains_conv2(config):
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
