"""G-PATE on the tiny data set."""

import tiny

from dpaf_jax.methods.g_pate.student import GPate
from dpaf_jax.training.batch import ClipBatch


def settings(**fields):
    return tiny.config(method='g_pate', **fields)


def gan_of(sigma=1.0, **fields):
    config = settings(**fields)
    return GPate(config, tiny.plan(config, sigma))


def mixed(query):
    """A fault: `query`, where every teacher sees the records of all."""

    def wrong(self, teachers, parts, fakes):
        number = len(parts.labels)
        shared = (x.reshape(1, -1, *x.shape[2:]).repeat(number, 0) for x in parts)
        return query(self, teachers, ClipBatch(*shared), fakes)

    return wrong
