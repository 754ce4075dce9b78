"""G-PATE on the tiny data set."""

import jax
import jax.numpy as jnp
import numpy as np
import tiny

from dpaf_jax.audit.methods import g_pate as audit
from dpaf_jax.methods.g_pate.student import GPate
from dpaf_jax.training.batch import ClipBatch


def settings(**fields):
    return tiny.config(method='g_pate', **fields)


def gan_of(sigma=1.0, **fields):
    config = settings(**fields)
    return GPate(config, tiny.plan(config, sigma))


def with_empty_slots(gan):
    """What teachers answer where slots without a record hold 0, and where they hold NaN.

    A slot without a record points at another teacher's; of a table it may be NaN.
    """
    state = jax.device_get(jax.jit(gan.init)(jax.random.key(0)))
    fakes = jax.jit(gan.fakes)(state.generator.params, jax.random.key(1))
    query = jax.jit(gan.query)
    images = np.full((8, 3, *gan.config.data.shape), 0.3, np.float32)
    is_padding = np.arange(24).reshape(8, 3) % 3 == 1

    def answered(content):
        filled = np.where(is_padding[..., None, None, None], content, images)
        labels = np.zeros((8, 3), np.int32)
        batch = ClipBatch(jnp.asarray(filled), labels, is_padding, labels)
        return jax.device_get(query(state.teachers.tree, batch, fakes))

    return answered(np.float32(0)), answered(np.float32(np.nan))


def audited(method, devices=(1,)):
    """Kinds of check that fail where one record turns many votes, or signs."""
    config = tiny.config(method=method, g_pate__teacher_learning_rate=1.0)
    plan = tiny.plan(config)
    (target,) = audit.audit_targets(config, plan, devices)
    return tiny.audit_failures(target, plan)


def mixed(query):
    """A fault: `query`, where every teacher sees the records of all."""

    def wrong(self, teachers, parts, fakes):
        number = len(parts.labels)
        shared = (x.reshape(1, -1, *x.shape[2:]).repeat(number, 0) for x in parts)
        return query(self, teachers, ClipBatch(*shared), fakes)

    return wrong
