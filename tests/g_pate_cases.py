"""G-PATE on the tiny data set."""

import tiny

from dpaf_jax.methods.g_pate.student import GPate


def settings(**fields):
    return tiny.config(method='g_pate', **fields)


def gan_of(sigma=1.0, **fields):
    config = settings(**fields)
    return GPate(config, tiny.plan(config, sigma))
