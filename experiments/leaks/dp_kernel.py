"""DP-Kernel as its authors run it leaks more than it claims; the certified release does not.

    python -m experiments.leaks.dp_kernel --out=leak

One game against the package's own code: is a record among the data, or is it empty? The
adversary knows all other records, the parameters and the public coins (latent draws), and
sees one step of the generator. As published the noise multiplies the gradient, so the step
has the direction of the gradient of the records that are there, whatever the noise: he
computes that of the data without the record, and looks how far the step leaves its line.
Certified, he sees the whole embedding and looks along the record's own row.

Prints a lower bound on epsilon, at 99.9 % confidence for all games together, beside the
epsilon of the whole training; writes dp_kernel_leak.json. Exit status 1 if the certified
mode was caught.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dpaf_jax.config import Config
from dpaf_jax.methods import dp_kernel
from dpaf_jax.methods.dp_kernel.published import LOSS, PublishedKernel
from dpaf_jax.methods.embedding.plan import EMBEDDING
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.command import parse, start
from dpaf_jax.training.batch import ClipBatch
from experiments.leaks.step import NUMBER, play, setting, steps

PUBLIC = jnp.arange(4, dtype=jnp.uint32)


@dataclasses.dataclass(frozen=True)
class StepGame:
    """Two neighbouring data sets and what a step on one of them shows.

    Attributes:
        config: as published or certified.
        plan: of it.
        batch: [NUMBER, 1] records; the first is the one in question.
    """

    config: Config
    plan: PrivacyPlan
    batch: ClipBatch
    name: str = 'step'

    @property
    def published(self) -> bool:
        """Whether the authors' own algorithm is played against."""
        return self.config.privacy.guarantee == 'as_published'

    @property
    def mechanism(self) -> Mechanism:
        """The only one."""
        return self.plan[LOSS if self.published else EMBEDDING]

    @property
    def epsilon(self) -> float:
        """Claimed, or certified, for the whole training."""
        claimed = self.plan.claimed_epsilon if self.published else self.plan.epsilon
        assert claimed is not None
        return claimed

    def play(self, trials: int, is_in: bool, seed: int) -> np.ndarray:
        """[trials, P] what is seen of a step each: its gradient, or the embedding."""
        return steps(self._seen, self.batch, trials, is_in, seed)

    def score(self, seen: np.ndarray, out: np.ndarray, in_: np.ndarray) -> np.ndarray:
        """[trials]: how much of the record there is in what was seen.

        What a game without the record shows has one direction, which any of its steps is;
        for the certified one the record's row is the difference of the means.
        """
        if not self.published:
            return seen @ (in_.mean(axis=0) - out.mean(axis=0))
        line = out[0] / np.linalg.norm(out[0])
        apart = seen - np.outer(seen @ line, line)
        return np.linalg.norm(apart, axis=1) / np.linalg.norm(seen, axis=1)

    @functools.cached_property
    def _seen(self) -> Callable[..., Any]:
        step = self._gradient if self.published else self._embedding
        # An axis of one device in front, for the sums over devices.
        of_trials = jax.vmap(step, in_axes=(None, 0))
        return jax.jit(jax.vmap(of_trials, (None, 0), axis_name=parallel.AXIS))

    def _gradient(self, batch: ClipBatch, key: jax.Array) -> jax.Array:
        method = PublishedKernel(self.config, self.plan)
        after, _ = method.step(method.init(jax.random.key(0)), batch, key, PUBLIC)
        # Adam's first moment is half of the gradient: nothing hides behind it.
        return 2 * ravel_pytree(after.opt_state[0].mu)[0]

    def _embedding(self, batch: ClipBatch, key: jax.Array) -> jax.Array:
        method = dp_kernel.matching(self.config, self.plan, 1)
        state = method.init(jax.random.key(0))
        released = method.release(state, method.query(state.coins, batch), key)
        return released.embedding.ravel()


def step_game(guarantee: str, epsilon: float) -> StepGame:
    """The game at one epsilon, with the smallest networks on made-up images."""
    fields = {
        'dp_kernel.batch_size': NUMBER,
        'dp_kernel.generator_steps': 100,
        'dp_kernel.features': 64,
    }
    config, batch = setting('dp_kernel', guarantee, fields, epsilon)
    return StepGame(config, dp_kernel.plan(config, NUMBER), batch)


def main(_: Sequence[str]) -> None:
    """The command."""
    play('dp_kernel', step_game)


if __name__ == '__main__':
    start(main, parse)
