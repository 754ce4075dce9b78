"""One process of a run of several, for test_hosts: `python processes.py <json> <flags>`.

It is `dpaf_jax.main` up to the release, with a fixed entropy. So that runs on other processes
can be compared bit by bit, the fingerprint here leaves the machine out, and the flag that
makes its devices, unless 'machine' says that it counts.
"""

import functools
import json
import os
import signal
import sys

settings = json.loads(sys.argv.pop(1))
os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = (
    f'--xla_force_host_platform_device_count={settings["devices"]}'
    ' --xla_cpu_use_fusion_emitters=false'
)

import jax  # noqa: E402
import tiny_runs  # noqa: E402

from dpaf_jax import main  # noqa: E402
from dpaf_jax.methods.dpaf.phase1 import classifier_phase  # noqa: E402
from dpaf_jax.pipeline import summary, synthesize  # noqa: E402
from dpaf_jax.runtime.errors import UserError  # noqa: E402
from dpaf_jax.training import fingerprint, phase  # noqa: E402
from dpaf_jax.training.progress import Progress  # noqa: E402

# Compiles sooner.
classifier_phase.WINDOW = phase.WINDOW = 2
jax.config.update('jax_disable_most_optimizations', True)
components, update = fingerprint.components, Progress.update


def anywhere(*args):
    parts = components(*args)
    without = {*fingerprint.MACHINE, 'XLA_FLAGS'}
    return {n: v for n, v in parts.items() if n not in without}


def cut(self, at, metrics):
    """At one phase and step: a signal from itself, or an error."""
    update(self, at, metrics)
    if [self.phase, at] != settings['at']:
        return
    if settings['does'] == 'fail':
        raise UserError('config.run', 'is made to fail', 'Do not')
    if settings['does'] == 'crash':
        raise ValueError('unforeseen')
    os.kill(os.getpid(), getattr(signal, settings['does']))


if not settings['machine']:
    fingerprint.components = anywhere
if settings['does']:
    Progress.update = cut
synthesize.Pipeline.stages = lambda self: synthesize.STAGES[:4]
summary.summary = lambda workdir: 'released'  # there is no report to sum up
synthesize.Pipeline = functools.partial(synthesize.Pipeline, entropy=tiny_runs.ENTROPY)
with tiny_runs.accounting_grid():
    main.run()
