"""DPBA-WGAN for the audit."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dpaf_jax.audit.methods import adversarial
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.adversarial.networks import AdversarialState
from dpaf_jax.methods.dpba_wgan.critic import DpbaWgan
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.phase import Metrics


class _OwnModel(DpbaWgan):
    """What a critic step shows: the model whose turn it is; the others stay as they are."""

    def discriminator_step(
        self, state: AdversarialState, *rest: Any
    ) -> tuple[AdversarialState, Metrics]:
        stepped, metrics = super().discriminator_step(state, *rest)
        return self.adversaries.own(stepped), metrics


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """The critic at each noise level; `devices`: numbers of devices."""
    return adversarial.audit_targets(_OwnModel, config, plan, devices)


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of a run of this plan."""
    return adversarial.trace(DpbaWgan, config, plan, keys)


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with thin networks and a few steps."""
    made = adversarial.shrink(config, num_examples)
    if not config.dpba_wgan.per_label:
        return made
    two_each = dataclasses.replace(
        made.dpba_wgan, generator_steps=2 * config.data.num_classes
    )
    return dataclasses.replace(made, dpba_wgan=two_each)
