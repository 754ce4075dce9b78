"""Generative methods: one module each, with `plan(config, N)` and `train(run)`."""

import dataclasses
from typing import Any, Protocol

from dpaf_jax.config import Config
from dpaf_jax.methods import (
    dp_gan,
    dp_kernel,
    dp_sinkhorn,
    dpaf,
    dpba_wgan,
    dpgen,
    feta,
    g_pate,
    gs_wgan,
    p3gm,
)
from dpaf_jax.methods.dp_gan import dp_cgan
from dpaf_jax.methods.dpgen import dpdm
from dpaf_jax.methods.embedding import dp_hp, dp_merf, ndpdc, pearl
from dpaf_jax.methods.g_pate import datalens, pate_gan
from dpaf_jax.networks.perceptual import efficientnet
from dpaf_jax.privacy.budgets import with_first
from dpaf_jax.privacy.class_histogram import (
    CLASSES,
    add_laplace,
    class_histogram,
    counts,
    shares,
)
from dpaf_jax.privacy.plan import ONE_GROUP, ONE_RECORD, PrivacyPlan
from dpaf_jax.release.samplers.registry import PRIOR
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.run import Run


class Method(Protocol):
    """What the module of a method has."""

    def plan(self, config: Config, num_examples: int) -> PrivacyPlan:
        """Its own mechanisms; `plan` below adds what the data section asks for."""

    def train(self, run: Run) -> Any:
        """Its own training, by the run's plan; returns the release's parameters."""


METHODS: dict[str, Method] = {
    'dpaf': dpaf,
    'dpgen': dpgen,
    'dpdm': dpdm,
    'feta': feta,
    'dp_merf': dp_merf,
    'dp_kernel': dp_kernel,
    'dp_hp': dp_hp,
    'pearl': pearl,
    'ndpdc': ndpdc,
    'dp_sinkhorn': dp_sinkhorn,
    'p3gm': p3gm,
    'dp_gan': dp_gan,
    'dp_cgan': dp_cgan,
    'datalens': datalens,
    'pate_gan': pate_gan,
    'g_pate': g_pate,
    'dpba_wgan': dpba_wgan,
    'gs_wgan': gs_wgan,
}


def get(name: str) -> Method:
    """The module of a method.

    Args:
        name: as `config.method` has it.

    Raises:
        UserError: no method has this name.

    Example:
        >>> get('dpaf') is dpaf
        True
    """
    if name not in METHODS:
        raise UserError(
            'config.method', f'is {name!r}', f'Choose one of {", ".join(METHODS)}'
        )
    return METHODS[name]


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The method's plan, and what the data section adds to it.

    With `data.noisy_prior` a class histogram comes first and takes that share of epsilon; the
    method plans with the rest. With `data.group` epsilon is for groups.

    Args:
        config: typed and checked.
        num_examples: N, public: of images, or of groups.

    Raises:
        UserError: the config does not fit the method, or epsilon cannot be met.
    """
    config = config.with_num_examples(num_examples)
    privacy, share = config.privacy, config.data.noisy_prior
    made = get(config.method).plan(_with_the_rest(config), num_examples)
    if share:
        classes = class_histogram(num_examples, privacy.epsilon * share)
        made = with_first(classes, made, privacy)
    if config.data.group:
        made = _of_groups(made)
    return made


def _of_groups(plan: PrivacyPlan) -> PrivacyPlan:
    """The same plan, stated of a whole group where it is stated of one image.

    Raises:
        ValueError: its neighbours do not name the image in the words looked for.
    """
    before, found, after = plan.neighbors.partition(ONE_RECORD)
    if not found:
        raise ValueError(f'{ONE_RECORD!r} does not stand in {plan.neighbors!r}')
    return dataclasses.replace(plan, neighbors=f'{before}{ONE_GROUP}{after}')


def _with_the_rest(config: Config) -> Config:
    """The config that the method reads: with what a class histogram leaves of epsilon."""
    epsilon = config.privacy.epsilon * (1 - config.data.noisy_prior)
    privacy = dataclasses.replace(config.privacy, epsilon=epsilon)
    return dataclasses.replace(config, privacy=privacy)


def check_installed(config: Config) -> None:
    """Stops before work starts where training needs what is not there.

    Raises:
        UserError: the public network that the config reads is not installed.
    """
    if config.public_features:
        efficientnet.load_params()


def train(run: Run) -> Any:
    """Trains the run's method; returns all parameters of the release.

    Guarantee: with a class histogram in the plan, the method reads its noisy shares in place
    of the config's prior. The histogram is released once: its coins stay the same when a run
    goes on, also on another machine, where all other keys are fresh ones.
    """
    if CLASSES not in run.plan:
        return get(run.config.method).train(run)
    exact = counts(run.data.labels, run.config.data.num_classes)
    noisy = add_laplace(exact, run.plan[CLASSES].noise_std, run.keys.lasting(CLASSES))
    prior = shares(noisy)
    data = dataclasses.replace(run.config.data, class_prior=tuple(map(float, prior)))
    config = dataclasses.replace(_with_the_rest(run.config), data=data)
    params = get(config.method).train(dataclasses.replace(run, config=config))
    return {**params, PRIOR: {'classes': prior}}
