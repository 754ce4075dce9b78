"""DP-GAN and DP-CGAN for the audit."""

from collections.abc import Sequence

from dpaf_jax.audit.methods import adversarial
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.dp_gan.dp_cgan import DpCgan
from dpaf_jax.methods.dp_gan.gan import DpGan
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan

KINDS = {'dp_gan': DpGan, 'dp_cgan': DpCgan}


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """The discriminator's step; `devices`: numbers of devices."""
    return adversarial.audit_targets(KINDS[config.method], config, plan, devices)


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of a run of this plan."""
    return adversarial.trace(KINDS[config.method], config, plan, keys)


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with thin networks and a few steps."""
    return adversarial.shrink(config, num_examples)
