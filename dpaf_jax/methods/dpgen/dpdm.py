"""DPDM: a diffusion model by DP-SGD (Dockhorn, Cao, Vahdat, Kreis 2023).

"Differentially Private Diffusion Models", with EDM's training (Karras et al. 2022), on DPGEN's
network and phase. DPGEN draws its noise levels from a few; here, for each of an image's
`multiplicity` draws,

    ln sigma ~ N(p_mean, p_std^2),

whose constants are public. Scaling by the level and the loss's weight are EDM's in both, and
the draws are averaged inside the clip in both: noise multiplicity is this paper's.

Guarantee: as for DPGEN, since a record's levels are coins that its index and the step decide.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.methods.dpgen import phase
from dpaf_jax.methods.dpgen.phase import ScorePhase
from dpaf_jax.methods.dpgen.score_matching import ScoreMatching
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release.samplers.dpdm import dpdm_sampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.run import Run


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """One mechanism, `score`: DP-SGD, which is also what the paper certifies.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit each other, N, or the budget.
    """
    if config.dpgen.sampler != 'heun':
        problem = f'is {config.dpgen.sampler!r}, which dpdm does not know'
        raise UserError('config.dpgen.sampler', problem, "Set it to 'heun'")
    privacy = dataclasses.replace(config.privacy, guarantee='certified')
    return phase.plan(dataclasses.replace(config, privacy=privacy), num_examples)


def train(run: Run) -> Any:
    """Trains the network; returns the moving average of its parameters."""
    return run.train(ScorePhase(run, make_matching(run.config, run.plan))).ema_params


class EdmMatching(ScoreMatching):
    """The static part of training; its methods are pure functions of arrays."""

    def draw_sigma(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Log-normal noise levels, float32 above 0 (Karras et al. 2022, Table 1)."""
        dpdm = self.config.dpdm
        return jnp.exp(dpdm.p_mean + dpdm.p_std * jax.random.normal(key, shape))


def make_matching(config: Config, plan: PrivacyPlan) -> EdmMatching:
    """Builds it for a config; raises UserError where the network does not fit."""
    return EdmMatching(dpdm_sampler(config), config, plan)
