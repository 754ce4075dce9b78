"""The published DPBA-WGAN leaks more than its claimed epsilon; the certified one does not.

    python -m experiments.leaks.dpba --out=leak

One game against the package's own critic step: is a record among the data, or is it empty?
The adversary knows all other records, the parameters and the public coins (latent draws,
interpolates), and sees one update of the critic: the gradient that line 13 of the
paper's Algorithm 1 calls differentially private. As published, the noise multiplies
each record's gradient, so the update lies in the space that the known gradients span, plus a
known part, whatever the noise. A record that takes part leaves that space; one that does
not, does not. Certified, he looks along the record's own clipped gradient.

Prints a lower bound on epsilon, at 99.9 % confidence for all games together, beside the
epsilon of the whole training; writes dpba_leak.json. Exit status 1 if the certified mode
was caught.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dpaf_jax.audit.harness import wild_state
from dpaf_jax.methods import dpba_wgan
from dpaf_jax.methods.dpba_wgan.critic import DpbaWgan
from dpaf_jax.methods.dpba_wgan.published import PublishedDpbaWgan
from dpaf_jax.methods.dpba_wgan.train import make_method
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.command import parse, start
from dpaf_jax.training.batch import ClipBatch
from experiments.leaks.step import NUMBER, play, setting, steps, world


@dataclasses.dataclass(frozen=True)
class DirectionGame:
    """Two neighbouring data sets and one critic step on one of them.

    Attributes:
        method: with its plan; as published or certified.
        batch: [NUMBER, 1] records; the first is the one in question.
        state: public.
    """

    method: DpbaWgan
    batch: ClipBatch
    state: Any
    name: str = 'direction'

    @property
    def mechanism(self) -> Mechanism:
        """Of the first step."""
        return self.method.mechanism_at(0)

    @property
    def plan(self) -> PrivacyPlan:
        """Of the whole training."""
        return self.method.plan

    @property
    def published(self) -> bool:
        """Whether the paper's own algorithm is played against."""
        return isinstance(self.method, PublishedDpbaWgan)

    @property
    def epsilon(self) -> float:
        """Claimed, or certified, for the whole training."""
        claimed = self.plan.claimed_epsilon if self.published else self.plan.epsilon
        assert claimed is not None
        return claimed

    def play(self, trials: int, is_in: bool, seed: int) -> np.ndarray:
        """[trials, P] gradients that the critic is updated by, times the batch size."""
        return steps(self._seen, self.batch, trials, is_in, seed)

    @functools.cached_property
    def _seen(self) -> Callable[..., Any]:
        method, std = self.method, jnp.float32(self.mechanism.noise_std)

        def step(batch: ClipBatch, key: jax.Array) -> jax.Array:
            after, _ = method.discriminator_step(self.state, batch, key, PUBLIC, std)
            # Adam's first moment is half of the gradient: nothing hides behind it.
            moment = after.discriminator_opt_state[0].mu
            return 2 * NUMBER * ravel_pytree(moment)[0]

        # An axis of one device in front, for the sums over devices.
        of_trials = jax.vmap(step, in_axes=(None, 0))
        return jax.jit(jax.vmap(of_trials, (None, 0), axis_name=parallel.AXIS))

    def score(self, seen: np.ndarray, _: np.ndarray, __: np.ndarray) -> np.ndarray:
        """[trials]: how much of the record there is in what was seen."""
        if not self.published:
            with_it, without = (
                self._exact(world(self.batch, i)) for i in (True, False)
            )
            alone, rest = with_it - without, seen - without
            return rest @ alone / np.linalg.norm(alone)
        distances, penalties = self._terms
        rest = seen - penalties[1:].sum(axis=0)  # of the others: known, without noise
        basis = np.linalg.svd(distances[1:], full_matrices=False)[2]
        record = distances[0] + penalties[0]
        leaving = record - (record @ basis.T) @ basis
        return np.abs(rest @ leaving) / np.linalg.norm(leaving)

    def _exact(self, batch: ClipBatch) -> np.ndarray:
        """The certified query without noise: what the adversary computes of known records."""
        exact = jax.tree.map(lambda leaf: leaf[0], self._query(batch)).rounded()
        return np.asarray(ravel_pytree(exact)[0], np.float64)

    @functools.cached_property
    def _query(self) -> Callable[..., Any]:
        def query(_: jax.Array, batch: ClipBatch) -> Any:
            return self.method.query(self.state, batch, PUBLIC)

        on_a_device = jax.vmap(query, (0, None), axis_name=parallel.AXIS)
        return functools.partial(jax.jit(on_a_device), jnp.zeros(1))

    @functools.cached_property
    def _terms(self) -> tuple[np.ndarray, np.ndarray]:
        """[NUMBER, P] gradients of the distances and of the weighted penalties."""
        plain = self.method
        assert isinstance(plain, PublishedDpbaWgan)

        def terms(_: jax.Array) -> Any:
            trios = plain.trios(self.state, self.batch, PUBLIC)
            return [
                jax.vmap(jax.grad(plain.published_cost), (None, 0, None))(
                    self.state.discriminator, trios, factors
                )
                for factors in ((1.0, 0.0), (0.0, 1.0))
            ]

        found = jax.jit(jax.vmap(terms, axis_name=parallel.AXIS))(jnp.zeros(1))
        rows = [
            np.concatenate([np.reshape(x[0], (NUMBER, -1)) for x in leaves], axis=1)
            for leaves in map(jax.tree.leaves, found)
        ]
        return rows[0].astype(np.float64), rows[1].astype(np.float64)


PUBLIC = jnp.arange(4, dtype=jnp.uint32)


def direction(guarantee: str, epsilon: float) -> DirectionGame:
    """The game at one epsilon, with the smallest networks on made-up images."""
    fields = {
        'dpba_wgan.batch_size': NUMBER,
        'dpba_wgan.discriminator_steps': 1,
        'dpba_wgan.generator_steps': 100,
        'dpba_wgan.width': 4,
        'dpba_wgan.fc_width': 8,
    }
    config, batch = setting('dpba_wgan', guarantee, fields, epsilon)
    plan = dpba_wgan.plan(config, NUMBER)
    method = make_method(config, plan, 1)
    shapes = jax.eval_shape(method.adversaries.init, jax.random.key(0))
    state = wild_state(shapes, ['discriminator', 'generator'], 0)
    return DirectionGame(method, batch, state)


def main(_: Sequence[str]) -> None:
    """The command."""
    play('dpba', direction)


if __name__ == '__main__':
    start(main, parse)
