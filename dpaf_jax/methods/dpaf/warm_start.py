"""DPAF's warm start: Algorithm 1 on images that nobody is protected in (preprint, Table 11).

Before the first private image is read, all of it runs on public images, with neither clip
nor noise. The private phases then begin with its discriminator, or with its generator too,
instead of random weights.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.networks import Params
from dpaf_jax.methods.dpaf.phase2.gan import GanState
from dpaf_jax.methods.dpaf.plan import plan
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.phase import Phase
from dpaf_jax.training.run import Run

Train = Callable[[Phase], Any]  # `Run.train`, or what stands for it
DISCRIMINATOR = 'conv1', 'conv2', 'head'


def warm_start(run: Run, algorithm: Callable[[Run, Train], GanState]) -> Params:
    """Parameters to start from; {} where the config has no warm start.

    Guarantee: a function of the public images and of public coins. Its keys are apart from
    those of the private phases, whose coins and noise nothing else may know.

    Args:
        run: of the private images, which are put aside.
        algorithm: 1, on the run that it is given.

    Raises:
        UserError: there are too few public images for the config's batches.
    """
    if not run.config.dpaf.warm_start:
        return {}
    state = algorithm(_on_public(run), lambda p: run.train(WithoutNoise(p, run.plan)))
    start: Params = {name: state.params[name] for name in DISCRIMINATOR}
    if run.config.dpaf.warm_start_parts == 'discriminator':
        return start
    return start | {'generator': state.generator.ema_params}


def _on_public(run: Run) -> Run:
    if run.public is None:
        raise ValueError('the run has no public images')
    config = public_config(run.config, len(run.public.images))
    try:
        unprotected = plan(config, len(run.public.images))
    except UserError as error:
        raise UserError(
            'config.dpaf.warm_start',
            f'has {len(run.public.images)} images, too few: {error}',
            'Name a larger source of public images, or none',
        ) from error
    return dataclasses.replace(
        run,
        config=config,
        plan=unprotected,
        data=run.public,
        public=None,
        keys=run.keys.apart('warm start'),
    )


def public_config(config: Config, num_images: int) -> Config:
    """What a run on the public images alone would have: no bound, no noise."""
    assert config.public_data
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.public_data, num_examples=num_images),
        privacy=dataclasses.replace(config.privacy, epsilon=math.inf),
        dpaf=dataclasses.replace(config.dpaf, warm_start=''),
    )


class WithoutNoise:
    """A phase on public images: a name of its own, and no charge.

    Args:
        phase: of the run on public images.
        private: the plan of the run that it is a part of.
    """

    def __init__(self, phase: Phase, private: PrivacyPlan):
        self._phase, self._private = phase, private
        self.name = f'warm_{phase.name}'
        self.total_steps = phase.total_steps
        self.images = phase.images
        self.init, self.window = phase.init, phase.window

    def charged(self, step: int) -> Mapping[str, int]:
        return {m.name: 0 for m in self._private.mechanisms}

    def picture(self, state: Any) -> None:
        return None  # it may have other classes than the run's samples
