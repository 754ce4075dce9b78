"""DP-MERF: a generator matched to one noisy mean embedding (Harder et al. 2021).

"DP-MERF: Differentially private mean embeddings with random features for practical
privacy-preserving data generation". The features are random Fourier features of a
Gaussian kernel. What is released, and why, is in `embedding/`.
"""

from typing import Any

from dpaf_jax.config import Config
from dpaf_jax.methods.embedding.fourier import check_fourier, fourier_features
from dpaf_jax.methods.embedding.matching import Matching
from dpaf_jax.methods.embedding.phase import MatchPhase
from dpaf_jax.methods.embedding.plan import one_release
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.run import Run


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: one Gaussian on all records; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit each other, or the budget.
    """
    check_fourier(config)
    return one_release(config, num_examples)


def matching(config: Config, plan: PrivacyPlan, num_devices: int) -> Matching:
    """The static part of a run on so many devices."""
    return Matching(config, plan, num_devices, fourier_features(config))


def train(run: Run) -> Any:
    """Releases the embedding, trains the generator; returns its parameters' average."""
    made = matching(run.config, run.plan, len(run.devices))
    return run.train(MatchPhase(run, made)).generator.ema_params
