"""All modules of a run of DPAF, built from its config."""

import dataclasses
import functools
import logging
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.networks.architecture import make_architecture
from dpaf_jax.networks.discriminator import ConvPart, Head
from dpaf_jax.networks.generator import make_generator
from dpaf_jax.networks.layers import convolve, convolve_by_products
from dpaf_jax.networks.perceptual.features import tapped

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Networks:
    """All modules of one run; they share nothing but the config.

    Attributes:
        head: the discriminator's; an answer for each of DPAGG's aggregates.
        labeller_reads: the features that a labeller, if there is one, is linear on.
        kinds_read: the network whose features the tap `kinds` is of; '' if none.
    """

    conv1: ConvPart
    conv2: ConvPart
    classifier_head: Head
    head: Head
    generator: nn.Module
    num_classes: int
    z_dim: int
    labeller_reads: str
    kinds_read: str


def make_networks(config: Config) -> Networks:
    """Builds the modules for a config; raises UserError where it does not fit."""
    layout = make_architecture(config)
    net, data = config.networks, config.data
    split = (layout.parts[0], layout.parts[0] + layout.parts[1])
    width3 = layout.widths[split[1] :]
    # Class-pure batches: a discriminator for each class, with shared features.
    answers = data.num_classes if config.dpaf.batches == 'class_pure' else 1
    # A penalty on the head's slope is differentiated twice.
    twice = convolve_by_products if config.dpaf.head.penalty else convolve
    shared = {'kernel_size': net.kernel_size, 'activation': config.dpaf.activation}
    part = functools.partial(ConvPart, **shared)
    head = functools.partial(Head, widths=width3, fc_width=net.fc_width, **shared)
    return Networks(
        conv1=part(layout.widths[: split[0]], label_injection=net.label_injection),
        conv2=part(layout.widths[split[0] : split[1]]),
        classifier_head=head(outputs=data.num_classes),
        head=head(
            outputs=answers,
            begins_at_zero=config.dpaf.head.begins_at_zero,
            convolve=twice,
        ),
        generator=make_generator(config),
        num_classes=data.num_classes,
        z_dim=net.z_dim,
        labeller_reads=config.dpaf.classifier.features,
        kinds_read=tapped(config.dpaf.tap_names),
    )


def started(own: Params, start: Params) -> Params:
    """Parameters with those of a start in their place, by name, where shapes are equal.

    Others stay random: where label planes come in, shapes are of the number of classes.
    """
    same = own.keys() & start.keys()
    return {n: _placed(n, p, start[n]) if n in same else p for n, p in own.items()}


def _placed(name: str, own: Any, start: Any) -> Any:
    def choose(path: Any, mine: Any, given: Any) -> Any:
        if np.shape(mine) == np.shape(given):
            return given
        where = jax.tree_util.keystr(path, simple=True, separator='/')
        logging.info(
            'warm start: %s/%s starts at random, of another shape', name, where
        )
        return mine

    return jax.tree_util.tree_map_with_path(choose, own, start)
