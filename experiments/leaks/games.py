"""Two games against phase 1 of DPAF: was the record among the data, or was it empty?

The adversary knows everything but that: both data sets, the initial parameters, the
config. All other records are copies of one picture, so whatever one record does to the
classifier happens to everybody's gradient alike. Every step is the package's own
`Classifier.step`, with noise and sampling of the plan that `methods.dpaf.plan` makes.

`tipping`: each batch is the whole data set. Some copies are labelled 0, the others 1, and
    the record (one more copy, labelled 0) decides on which side of the prediction the true
    share lies: the sign of the loss's gradient at the aggregate, and with it the direction
    in which everybody's clipped gradient points. What he sees: conv1 after the last step.
`subsampled`: the paper's MNIST sizes, N = 60 000, batches of 24, one epoch. All copies are
    labelled 0, the record too. The one batch in which it is empty has a share of 23/24
    where all others have 1: once the classifier predicts more than 47/48, that batch sends
    everybody backwards. He sees conv1 after each step, as DP-SGD's own proof assumes.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from ml_collections import ConfigDict

from configs import default
from dpaf_jax.config import from_config_dict
from dpaf_jax.methods import dpaf
from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier
from dpaf_jax.methods.dpaf.phase1.published import make_classifier
from dpaf_jax.privacy import accounting, published
from dpaf_jax.privacy.chacha import KEY_WORDS
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch

SIDE, CLASSES = 8, 2
CHUNK = 50  # trials side by side


@dataclasses.dataclass(frozen=True)
class Game:
    """Two neighbouring data sets and a classifier trained on one of them.

    Attributes:
        name: of the game.
        classifier: with its plan; as published or certified.
        images: [slots, H, W, C] uint8; slot 0 is the record's, the others are alike.
        labels: [slots] int32.
        init: the public initial state.
        score: conv1's iterates of trials and of rehearsals to scores; see `Score`.
    """

    name: str
    classifier: Classifier
    images: np.ndarray
    labels: np.ndarray
    init: Any
    score: 'Score'

    @property
    def mechanism(self) -> Mechanism:
        """conv1's."""
        return self.classifier.mechanism

    @property
    def plan(self) -> PrivacyPlan:
        """Of the run."""
        return self.classifier.plan

    @property
    def published(self) -> bool:
        """Whether the paper's own algorithm is played against."""
        return self.classifier.config.privacy.as_published

    @property
    def epsilon(self) -> float:
        """Claimed by the paper's theorem, or certified, for conv1 alone."""
        if self.published:
            return published.epsilon([self.mechanism], self.plan.delta)
        delta = self.plan.delta - self.plan.overflow_delta
        return accounting.epsilon_pld(self.mechanism.event(), delta)

    def play(self, trials: int, is_in: bool, seed: int) -> np.ndarray:
        """Trains from the start, many times.

        Args:
            trials: how often, with fresh coins each.
            is_in: whether the record is in the data; else its slot is padding.
            seed: of samples and noise.

        Returns:
            [trials, steps, parameters] movement of conv1 at each step.
        """
        rng = np.random.default_rng(seed)
        played = [self._play(is_in, rng) for _ in range(0, trials, CHUNK)]
        return np.concatenate(played)[:trials]

    def _play(self, is_in: bool, rng: np.random.Generator) -> np.ndarray:
        drawn, others = self._draws(CHUNK, rng)
        state = jax.tree.map(
            lambda leaf: np.broadcast_to(leaf, (1, CHUNK, *leaf.shape)), self.init
        )
        moves = []
        for t in range(self.mechanism.steps):
            keys = rng.integers(2**32, size=(1, CHUNK, KEY_WORDS), dtype=np.uint32)
            # An axis of one device in front, for the sums over devices.
            state, moved = self._compiled(
                state, drawn[None, :, t] & is_in, others[None, :, t], keys
            )
            moves.append(np.asarray(moved[0]))
        return np.stack(moves, axis=1)

    def _draws(
        self, trials: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """[trials, steps] whether the record's turn has come, and how many copies.

        The others are alike, so their number is all that matters of a draw.
        """
        m, shape = self.mechanism, (trials, self.mechanism.steps)
        size, number = int(m.expected_batch_size), self.classifier.plan.num_examples
        if not self.classifier.config.privacy.as_published:
            drawn = rng.random(shape) < m.sampling_prob
            return drawn, rng.binomial(number - 1, m.sampling_prob, shape)
        per_epoch = number // size  # shuffled epochs: one batch in each
        epochs = -(-m.steps // per_epoch)
        place = np.repeat(rng.integers(per_epoch, size=(trials, epochs)), per_epoch, 1)
        drawn = (np.arange(epochs * per_epoch) % per_epoch == place)[:, : m.steps]
        return drawn, size - drawn.astype(int)

    @functools.cached_property
    def _compiled(self) -> Callable[..., Any]:
        of_trials = jax.vmap(self._step)
        return jax.jit(jax.vmap(of_trials, axis_name=parallel.AXIS))

    def _step(self, state: Any, is_in: Any, others: Any, key: Any) -> Any:
        after, _ = self.classifier.step(state, self._units(is_in, others), key)
        return after, _conv1(after) - _conv1(state)

    def _units(self, is_in: jax.Array, others: jax.Array) -> ClipBatch:
        slots = jnp.arange(len(self.labels))
        padding = jnp.where(slots == 0, ~is_in, slots > others)
        images, labels = jnp.asarray(self.images), jnp.asarray(self.labels)
        return ClipBatch(
            images[:, None], labels[:, None], padding[:, None], slots[:, None]
        )


# (movements to score, rehearsed without the record, with it) -> [trials] scores, larger
# where the record is in.
Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def by_last_iterate(
    moves: np.ndarray, rehearsed_out: np.ndarray, rehearsed_in: np.ndarray
) -> np.ndarray:
    """How far conv1 ended in the direction in which the two worlds differ."""
    ends = [m.sum(axis=1) for m in (moves, rehearsed_out, rehearsed_in)]
    return ends[0] @ (ends[2].mean(axis=0) - ends[1].mean(axis=0))


def by_one_step_back(
    moves: np.ndarray, rehearsed_out: np.ndarray, rehearsed_in: np.ndarray
) -> np.ndarray:
    """How far the least step goes in the direction that is usual at that step."""
    usual = np.concatenate([rehearsed_out, rehearsed_in]).mean(axis=0)
    return np.min(np.einsum('nti,ti->nt', moves, usual), axis=1)


def tipping(guarantee: str, num_examples: int = 240) -> Game:
    """The first game; the number of records is a free choice."""
    config = _config(guarantee, num_examples, num_examples, 8.0, 2e-5, 0.05)
    return _game('tipping', config, by_last_iterate, _tipping_labels)


def subsampled(guarantee: str, num_examples: int = 60000, batch: int = 24) -> Game:
    """The second game."""
    config = _config(guarantee, num_examples, batch, 1.0, 1e-5, 1.0)
    return _game('subsampled', config, by_one_step_back, _all_alike)


GAMES = {'tipping': tipping, 'subsampled': subsampled}


def _config(
    guarantee: str, number: int, batch: int, epochs: float, clip: float, rate: float
) -> ConfigDict:
    """The default settings with the smallest networks; budgets stay (0.1, rest, 0.1).

    The clip bound is small, so that gradients exceed it: epsilon does not depend on it.
    """
    fields = {
        'data.image_size': SIDE,
        'data.num_classes': CLASSES,
        'data.num_examples': number,
        'networks.layers': 'C1-C1-x',
        'networks.kernel_size': 2,
        'networks.width': 1,
        'networks.max_width': 1,
        'networks.fc_width': 2,
        'networks.label_injection': 'none',
        'privacy.guarantee': guarantee,
        'dpaf.batch_size': batch,
        'dpaf.asymmetry': 1,
        'dpaf.n_critic': 1,
        'dpaf.epochs': epochs,
        'dpaf.classifier.batch_size': batch,
        'dpaf.classifier.epochs': epochs,
        'dpaf.classifier.l2_clip_norm': clip,
        'dpaf.classifier.optimizer': 'sgd',
        'dpaf.classifier.learning_rate': rate,
        'dpaf.conv2.batch_size': batch,
    }
    config = default.get_config()
    config.update_from_flattened_dict(fields)
    return config


def _game(name: str, fields: ConfigDict, score: Score, labels_of: Any) -> Game:
    config = from_config_dict(fields)
    plan = dpaf.plan(config, config.data.num_examples)
    classifier = make_classifier(make_networks(config), config, plan)
    init = jax.device_get(classifier.init(jax.random.key(0)))
    picture = np.random.default_rng(0).integers(
        256, size=(SIDE, SIDE, 1), dtype=np.uint8
    )
    # A slot more than a draw holds: the record's own, which is mostly padding.
    slots = plan['conv1'].capacity + 1
    images = np.broadcast_to(picture, (slots, *picture.shape))
    labels = labels_of(classifier, init, picture, slots)
    return Game(name, classifier, images, labels.astype(np.int32), init, score)


def _all_alike(_: Any, __: Any, ___: Any, slots: int) -> np.ndarray:
    return np.zeros(slots, int)


def _tipping_labels(
    classifier: Classifier, init: Any, picture: np.ndarray, slots: int
) -> np.ndarray:
    """As many zeros, the record's included, as put its absence below the prediction."""
    maps = classifier.normalised(init.params, jnp.asarray(picture[None]))
    logits = classifier.networks.classifier_head.apply(init.params['head'], maps)
    number = classifier.plan.num_examples
    # With n0 zeros the gradient's sign changes at n0/N - 1/2N without the record, and at
    # n0/N with it; see docs/explanation/published_proofs.md.
    zeros = math.ceil(number * float(jax.nn.softmax(logits)[0, 0]))
    return (np.arange(slots) >= zeros).astype(int)


def _conv1(state: Any) -> jax.Array:
    return ravel_pytree(state.params['conv1'])[0]
