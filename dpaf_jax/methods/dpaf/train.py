"""DPAF, Algorithm 1."""

from typing import Any

from dpaf_jax.methods.dpaf.batch_phase import GanPhase
from dpaf_jax.methods.dpaf.classifier import Classifier
from dpaf_jax.methods.dpaf.classifier_phase import (
    ClassifierPhase,
    LabellerPhase,
)
from dpaf_jax.methods.dpaf.gan import Gan
from dpaf_jax.methods.dpaf.labeller import Labeller
from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.table_phase import TablePhase
from dpaf_jax.methods.dpaf.taps import make_row_layout
from dpaf_jax.release.samplers.dpaf import LABELLER, labelled
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
        FloatingPointError: a loss is NaN.
    """
    networks, config = make_networks(run.config), run.config
    learnt: dict[str, Any] = {}
    if LABELLER in run.plan:
        phase1: ClassifierPhase = LabellerPhase(run, Labeller(config, run.plan))
        learnt[LABELLER] = run.train(phase1).params
    elif 'conv1' in run.plan:
        phase1 = ClassifierPhase(run, Classifier(networks, config, run.plan))
        learnt['conv1'] = run.train(phase1).params['conv1']
    gan = Gan(networks, make_row_layout(config), config, run.plan, len(run.devices))
    phase = TablePhase if run.plan['dpagg'].sampling_prob == 1 else GanPhase
    generator = run.train(phase(run, gan, learnt)).average
    return labelled(generator, learnt[LABELLER]) if LABELLER in learnt else generator
