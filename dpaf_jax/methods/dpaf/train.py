"""DPAF, Algorithm 1: the classifier, then the GAN on its frozen conv1.

Line numbers are those of the paper's listing. What each step does with a private image
stands in classifier.py and labeller.py (phase 1), aggregator.py (DPAGG) and
conv2_update.py; every other step reads noised outputs and fakes alone.
"""

from typing import Any

import jax

from dpaf_jax.methods.dpaf.networks import Params, make_networks
from dpaf_jax.methods.dpaf.phase1.classifier_phase import ClassifierPhase, LabellerPhase
from dpaf_jax.methods.dpaf.phase1.labeller import Labeller
from dpaf_jax.methods.dpaf.phase1.published import make_classifier
from dpaf_jax.methods.dpaf.phase2.batch_phase import BatchPhase
from dpaf_jax.methods.dpaf.phase2.conv2_update import conv2_step
from dpaf_jax.methods.dpaf.phase2.discriminator import head_steps
from dpaf_jax.methods.dpaf.phase2.gan import Gan, GanState
from dpaf_jax.methods.dpaf.phase2.generator_update import generator_steps
from dpaf_jax.methods.dpaf.phase2.one_shot_phase import OneShotPhase
from dpaf_jax.methods.dpaf.phase2.published import PublishedBatchPhase, published_step
from dpaf_jax.methods.dpaf.warm_start import Train, warm_start
from dpaf_jax.release.samplers.dpaf import LABELLER, labelled
from dpaf_jax.training.input_pipeline import gather
from dpaf_jax.training.phase import Metrics, repeat, sometimes
from dpaf_jax.training.run import Run


def train(run: Run) -> Any:
    """Trains the classifier, then the GAN (DPAF, Algorithm 1).

    Guarantee: all that it returns, and every state on the way, is a function of the noised
    outputs of `run.plan` and of public keys.

    Args:
        run: with the plan, the data, the keys and the devices.

    Returns:
        The parameters that `release.samplers.dpaf.dpaf_sampler` samples with: the
        generator's moving average, and the labeller's if there is one.

    Raises:
        Interrupted: after a signal, saved.
        FloatingPointError: a metric is infinite, or has long been NaN.
    """
    start = warm_start(run, lambda public, train: algorithm(public, train, {})[0])
    state, learnt = algorithm(run, run.train, start)
    generator = state.generator.ema_params
    return labelled(generator, learnt[LABELLER]) if LABELLER in learnt else generator


def algorithm(run: Run, train: Train, start: Params) -> tuple[GanState, Params]:
    """Algorithm 1: the GAN's last state, and what phase 1 has learnt.

    Args:
        run: with the images that it reads.
        train: a phase, to its end.
        start: of `warm_start`.
    """
    learnt = train_classifier(run, train, start)  # lines 1-5
    gan = Gan(run.config, run.plan, len(run.devices))
    if gan.schedule.dpagg.sampling_prob == 1:  # every image in each aggregate
        return train(OneShotPhase(run, gan, learnt, start)), learnt
    phase = PublishedBatchPhase if gan.published else BatchPhase
    return train(phase(run, gan, learnt, window, start)), learnt  # lines 6-17


def train_classifier(run: Run, train: Train, start: Params) -> Params:
    """Lines 1-5: DP-SGD on all of a classifier; conv1, or a labeller, is kept."""
    config, plan = run.config, run.plan
    if LABELLER in plan:
        labeller = Labeller(config, plan)
        return {LABELLER: labeller.learnt(train(LabellerPhase(run, labeller)).params)}
    if 'conv1' in plan and config.dpaf.classifier.private != 'discriminator':
        classifier = make_classifier(make_networks(config), config, plan)
        phase = ClassifierPhase(run, classifier, start)
        return {'conv1': train(phase).params['conv1']}
    return {}


def window(
    gan: Gan,
    state: GanState,
    data: Any,
    draw: Any,
    steps: Any,
    update_draws: Any,
    *,
    unrolls: bool,
) -> tuple[GanState, Metrics]:
    """Lines 6-17 on mu Poisson draws: a pure function, compiled as one.

    In Algorithm 1 conv2* precedes the generator where both fall on one step; here it
    follows, so that the generator always meets the features of the latest aggregates.

    Args:
        gan: the parts.
        state: at the first step.
        data: the images on this device, if they fit there.
        draw: this device's share of the mu draws of DPAGG, and which each slot is of.
        steps: by step: StepKeys, active aggregates, whether the generator is updated.
        update_draws: this device's share of the draw of each of `gan.updates`.
        unrolls: whether steps are compiled one by one.
    """
    config, batch = gan.config.dpaf, gather(data, draw)
    sums = gan.aggregator.queries(  # images meet the same features at all mu steps
        state.params, batch, draw['segment_ids'], config.asymmetry
    )

    def step(state: GanState, x: Any) -> tuple[GanState, Metrics]:
        keys = x['keys']
        metrics: Metrics = {}
        # Line 8: DPAGG, the features' noised sum.
        state = gan.privatised(state, x['sums'], x['active'], keys.real_noise)
        if gan.schedule.trains_head:  # lines 11, 14: conv3* and FC* by L_BCE
            state, metrics = head_steps(gan, state, keys)
        # Lines 15-17: the generator, every n_critic-th step.
        state, made = sometimes(
            x['updates_generator'], lambda s: generator_steps(gan, s, keys), state
        )
        return state, metrics | made

    state, metrics = repeat(unrolls, step, state, {**steps, 'sums': sums})
    last = jax.tree.map(lambda leaf: leaf[-1], steps['keys'])
    for name in gan.updates:  # lines 9-12: conv2* by L'_BCE, every mu-th step
        if gan.published:  # the latest batches once more, as printed
            ids = draw['segment_ids']
            state = published_step(gan, state, batch, ids, last, name)
        else:
            own = gather(data, update_draws[name])
            state = conv2_step(gan, state, own, last, name)
    return state, metrics
