"""DP-Kernel: a generator matched by a mean of kernels (Jiang, Sun and Yu 2023).

"Functional Renyi differential privacy for generative modeling". The features are random
Fourier features of Gaussian kernels of several widths: an inner product of two rows is
their mean. The Gaussian on the table is then the paper's Gaussian process, whose
covariance is the kernel: `<w, row(x)>` with w of independent normals. The function is
released once, as a whole, so it may be evaluated and differentiated wherever one likes.
`published.py` is what the authors run, and certifies nothing.
"""

from typing import Any

from dpaf_jax.config import Config
from dpaf_jax.methods.dp_kernel.published import (
    PublishedKernel,
    published_plan,
)
from dpaf_jax.methods.embedding.fourier import check_fourier, fourier_features
from dpaf_jax.methods.embedding.matching import Matching
from dpaf_jax.methods.embedding.phase import MatchPhase
from dpaf_jax.methods.embedding.plan import one_release
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.run import Run
from dpaf_jax.training.sampled_phase import SampledPhase


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: one Gaussian on all records; looks at no image.

    As published, one without a guarantee.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit each other, or the budget.
    """
    check_fourier(config)
    if config.privacy.as_published:
        return published_plan(config, num_examples)
    return one_release(config, num_examples)


def matching(config: Config, plan: PrivacyPlan, num_devices: int) -> Matching:
    """The static part of a run on so many devices."""
    return Matching(config, plan, num_devices, fourier_features(config))


def train(run: Run) -> Any:
    """Releases the embedding, trains the generator; returns its parameters' average."""
    if run.config.privacy.as_published:
        method = PublishedKernel(run.config, run.plan)
        return run.train(SampledPhase(run, method, unrolls=run.unrolls)).ema_params
    made = matching(run.config, run.plan, len(run.devices))
    return run.train(MatchPhase(run, made)).generator.ema_params
