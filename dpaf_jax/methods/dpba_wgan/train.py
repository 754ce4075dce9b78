"""Which critic step runs, and its training."""

from typing import Any

from dpaf_jax.config import Config
from dpaf_jax.methods.adversarial.phase import AdversarialPhase
from dpaf_jax.methods.dpba_wgan.critic import DpbaWgan
from dpaf_jax.methods.dpba_wgan.plan import is_published
from dpaf_jax.methods.dpba_wgan.published import PublishedDpbaWgan
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.run import Run


def make_method(config: Config, plan: PrivacyPlan, num_devices: int) -> DpbaWgan:
    """The static part of a run on so many devices: certified, or the paper's own."""
    kind = PublishedDpbaWgan if is_published(config) else DpbaWgan
    return kind(config, plan, num_devices)


def train(run: Run) -> Any:
    """Trains both networks in turn; returns the average of the generator's parameters."""
    method = make_method(run.config, run.plan, len(run.devices))
    return run.train(AdversarialPhase(run, method)).generator.ema_params
