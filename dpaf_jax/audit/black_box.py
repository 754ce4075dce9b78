"""Black-box audit: whole trainings at tiny size, seen through the released generator.

A canary unlike all other images, in one class, is in the data or absent; the attack looks
at the generator's mean image of that class. A run gives one guess, so some dozens of
runs can refute only the grossest failure: the finding says how large a bound they could
have shown at all. The config's kind of run, epsilon and budgets stay; images, networks,
data and steps shrink, and the plan is made for the shrunk config.
"""

import contextlib
import io
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from dpaf_jax import methods
from dpaf_jax.audit import bounds, canaries
from dpaf_jax.audit.findings import Check, Outcome, of_bound
from dpaf_jax.audit.target import MethodAudit
from dpaf_jax.config import Config
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.release.samplers.dpaf import as_trained
from dpaf_jax.release.samplers.registry import PRIOR, make_sampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.run import Run

NUM_EXAMPLES = 64
SEEN = 200  # images of the generator that the attack averages


def check(config: Config, method: MethodAudit, runs: int, seed: int) -> Check:
    """The check of the release; see the module."""
    case = f'{runs} tiny trainings a side'
    try:
        methods.plan(method.shrink(config, NUM_EXAMPLES), NUM_EXAMPLES)
    except UserError as error:  # before any other check is made
        problem = f'is {runs}, but this config has no tiny form ({error})'
        raise UserError('--runs', problem, 'Give 0: no tiny trainings') from error
    return Check.of('release', 'epsilon', case, _run, config, method, runs, seed)


def _run(
    config: Config, method: MethodAudit, runs: int, seed: int, alpha: float
) -> Outcome:
    small = method.shrink(config, NUM_EXAMPLES)
    plan = methods.plan(small, NUM_EXAMPLES)
    images = canaries.noise_images(small.data, NUM_EXAMPLES, seed=3)
    labels = np.arange(NUM_EXAMPLES, dtype=np.int32) % small.data.num_classes
    images[-1] = canaries.extremes(small.data, 1)[0]

    def score(number: int, canary: bool) -> float:
        entropy = (2 * number + canary).to_bytes(8) + seed.to_bytes(24)
        keys = RunKeys(entropy, bytes(32).hex())
        with tempfile.TemporaryDirectory() as folder, _silence():
            # The plan counts it in both worlds: where it is absent, it is an empty record.
            last = NUM_EXAMPLES if canary else NUM_EXAMPLES - 1
            data = canaries.dataset(small, images[:last], labels[:last])
            where, devices = pathlib.Path(folder), jax.local_devices()[:1]
            params = methods.train(Run(where, small, plan, data, keys, devices))
        made = _score(small, params, images, labels)
        # Each training compiles programs of its own. Kept, those of dozens use up the
        # memory maps that a process may have (Linux: 65 530), and it dies.
        jax.clear_caches()
        return made

    scores = [
        np.array([score(i, canary) for i in range(runs)]) for canary in (True, False)
    ]
    bound = bounds.epsilon_lower_bound(scores[0], scores[1], alpha, plan.delta)
    most = bounds.largest_bound(runs, alpha, plan.delta)
    assert plan.epsilon is not None
    return of_bound(bound, most, plan.epsilon, f'{runs} runs a side')


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Without what a run says of itself: there are dozens of them.

    Absl's handler holds the stderr of its start, which a redirection does not reach.
    """
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    nowhere = io.StringIO()
    try:
        with contextlib.redirect_stderr(nowhere), contextlib.redirect_stdout(nowhere):
            yield
    finally:
        logging.set_verbosity(verbosity)


def _score(
    config: Config, params: Any, images: np.ndarray, labels: np.ndarray
) -> float:
    """How much the generator's mean image of the canary's class leans to the canary."""
    wanted = jnp.full(SEEN, labels[-1], jnp.int32)
    own = {name: part for name, part in params.items() if name != PRIOR}
    made = make_sampler(as_trained(config)).sample(own, jax.random.key(5), wanted)
    real = np.asarray(to_float(jnp.asarray(images)))
    others = real[:-1].mean(axis=0)
    canary = real[-1] - others
    return float(
        np.vdot(np.mean(made, axis=0) - others, canary) / np.vdot(canary, canary)
    )
