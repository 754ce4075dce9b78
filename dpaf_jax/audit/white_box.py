"""White-box audits of one mechanism: the adversary knows all but one record and the coins.

She knows the parameters (she may choose them), the other records of the draw, and that
her canary is drawn if it is there at all; she sees the noisy sum. What the plan claims
then is one Gaussian (or Laplace) mechanism of its noise multiplier, without amplification:
that sampling is honest is checked apart, by its coins (randomness.py).

A neighbour lacks one record: its slot is empty, or the data arrays lack it and all others
have other rows and slots. Both are tried.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from dpaf_jax.audit import bounds
from dpaf_jax.audit.findings import POWERLESS, Check, NotFinite, Outcome, of_bound
from dpaf_jax.audit.noise_laws import LAWS
from dpaf_jax.audit.target import AuditTarget, Scene
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.chacha import KEY_WORDS

SAMPLES = 600_000  # of the noise: a standard deviation off by 1 % is 11 sigma away
LEAST_RELEASES = 4  # of the noise: columns of so many values meet by no chance
COMPARED_RELEASES = 16  # in which coordinates are compared
CELL = 1e-4  # of the noise's scale: nearer values are taken for one
BATCH_VALUES = 3_000_000  # coordinates that one call releases, at most
BATCH_KEYS = 512
# Guesses about many canaries say nothing at a delta near 1 / their number: this much less.
ONE_RUN_DELTA = 1e-3
ROUNDING = 1e-4, 2e-6  # relative to the sensitivity; to the norm of the sum
LEAST_MOVE = 0.1  # over the claimed sensitivity: canaries that move less test nothing
ONE_KEY = np.zeros((1, KEY_WORDS), np.uint32)


class Canary(NamedTuple):
    """The record that moves the sum most.

    Attributes:
        scene: with it.
        without: its neighbour.
        move: [F] difference of the exact sums.
        excess: norm of `move` (in l1 under Laplace noise) over the claimed sensitivity,
            less rounding.
    """

    scene: Scene
    without: Scene
    move: np.ndarray
    excess: float


class MechanismAudit:
    """All checks of one mechanism.

    Args:
        target: the mechanism.
        delta: at which epsilon is claimed.
        repetitions: of the attack, with and without the canary each.
        seed: of the audit's own coins: noise keys and which canaries are in.
    """

    def __init__(self, target: AuditTarget, delta: float, repetitions: int, seed: int):
        self._target, self._m = target, target.mechanism
        self._law_of = LAWS[target.mechanism.law]
        self._delta, self._repetitions = delta, repetitions
        self._seed = seed
        self._scale = self._m.noise_multiplier * self._m.l2_sensitivity
        self._one = min(target.release)

    def claimed_epsilon(self, delta: float) -> float:
        """Of one draw that contains the canary."""
        event = self._law_of.event(self._m.noise_multiplier)
        return accounting.epsilon_pld(event, delta)

    def checks(self) -> list[Check]:
        """In the order in which they are best read."""
        case = self._case(self._one)
        made = [self._check('epsilon', case, self._epsilon)]
        if self._m.law == 'gaussian':
            made.append(self._check('epsilon (Gaussian)', case, self._gaussian))
        made.append(self._check('epsilon (one run)', case, self._one_run))
        for number in self._target.release:
            each = self._case(number)
            made.append(self._check('sensitivity', each, self._sensitivity, number))
            for draw in ('empty draw', 'full draw'):
                level = f'{each}, {draw}'
                made.append(
                    self._check('noise level', level, self._level, number, draw)
                )
            made.append(
                self._check('noise by coordinate', each, self._each_coordinate, number)
            )
            if not self._law_of.rounded:
                made.append(self._check('repeated noise', each, self._repeats, number))
        made.append(self._check('noise law', case, self._law))
        made.append(self._check('noise independence', 'coordinates', self._coordinates))
        return made

    def _check(
        self, kind: str, case: str, run: Callable[..., Outcome], *args: Any
    ) -> Check:
        return Check.of(self._m.name, kind, case, run, *args)

    @staticmethod
    def _case(number: int) -> str:
        return f'{number} device' + ('s' if number > 1 else '')

    # --- releases ----------------------------------------------------------------------

    def _exact(self, number: int, scene: Scene) -> np.ndarray:
        made = self._target.exact[number](scene.state, scene.batch, ONE_KEY)[0]
        if not np.isfinite(made).all():
            raise NotFinite('the exact sum is not finite: nothing has clipped it')
        return made

    def _noisy(
        self, number: int, scene: Scene, purpose: str, least: int
    ) -> Iterator[np.ndarray]:
        """[R, F] releases in chunks until there are `least`, each with a key of its own."""
        size = len(self._exact(number, scene))
        batch = max(1, min(BATCH_KEYS, BATCH_VALUES // size, least))
        digits = [ord(c) for c in f'{self._m.name}/{number}/{purpose}']
        rng = np.random.default_rng([self._seed, *digits])
        for start in range(0, least, batch):
            keys = rng.integers(2**32, size=(batch, KEY_WORDS), dtype=np.uint32)
            made = self._target.release[number](scene.state, scene.batch, keys)
            yield made[: least - start]

    @functools.cache  # noqa: B019 (an audit lives as long as the command)
    def _noise(self, number: int, draw: str) -> np.ndarray:
        """[R, F] noise over its claimed scale, `SAMPLES` values or more."""
        scene = self._target.scenes[0]
        if draw == 'empty draw':
            scene = scene.empty()
        exact = self._exact(number, scene)
        releases = max(LEAST_RELEASES, -(-SAMPLES // len(exact)))
        chunks = self._noisy(number, scene, draw, releases)
        noise = np.concatenate([chunk - exact for chunk in chunks])
        return self._law_of.continuous(noise, self._scale) / self._scale

    def noise_of(self, keys: np.ndarray) -> np.ndarray:
        """Noise keys [R, 8] to their noise [R, F], over its claimed scale."""
        scene = self._target.scenes[0].empty()
        noisy = self._target.release[self._one](scene.state, scene.batch, keys)
        return (noisy - self._exact(self._one, scene)) / self._scale

    # --- sensitivity -------------------------------------------------------------------

    @functools.cache  # noqa: B019 (an audit lives as long as the command)
    def _canary(self, number: int) -> Canary:
        best: Canary | None = None
        for scene in self._target.scenes:
            sums = [self._exact(number, s) for s in (scene, scene.empty())]
            for place in scene.places:
                alone = scene.alone(place)
                neighbours = scene.without(place), scene.removed(place)
                for found in (
                    *(
                        self._moved(scene, other, sums[0], self._exact(number, other))
                        for other in neighbours
                    ),
                    self._moved(
                        alone, scene.empty(), self._exact(number, alone), sums[1]
                    ),
                ):
                    if best is None or found.excess > best.excess:
                        best = found
        assert best is not None
        return best

    def _moved(
        self, scene: Scene, without: Scene, whole: np.ndarray, rest: np.ndarray
    ) -> Canary:
        norm = self._law_of.norm
        rounding = ROUNDING[1] * float(np.linalg.norm(whole, norm))
        far = float(np.linalg.norm(whole - rest, norm)) - rounding
        return Canary(scene, without, whole - rest, far / self._m.l2_sensitivity)

    def _sensitivity(self, number: int, _: float) -> Outcome:
        excess = self._canary(number).excess
        tried = sum(3 * len(scene.places) for scene in self._target.scenes)
        detail = f'largest of {tried} neighbours, over the claimed sensitivity'
        made = Outcome(excess <= 1 + ROUNDING[0], excess, 1.0, detail)
        return self._if_moved(number, made)

    def _if_moved(self, number: int, made: Outcome) -> Outcome:
        """The same outcome, marked where no canary moves the sum: then nobody looked."""
        excess = self._canary(number).excess
        if excess >= LEAST_MOVE:
            return made
        detail = f'{made.detail}; canaries move the sum by {excess:.2g}: {POWERLESS}'
        return made._replace(detail=detail, has_power=False)

    # --- epsilon -----------------------------------------------------------------------

    @functools.cached_property
    def _scores(self) -> tuple[np.ndarray, np.ndarray]:
        """[R] scores with the canary and without: along its move, in units of noise."""
        canary = self._canary(self._one)
        length = max(float(np.linalg.norm(canary.move)), 1e-30)
        direction = canary.move / length
        centre = self._exact(self._one, canary.without)
        made = []
        for purpose, scene in (('in', canary.scene), ('out', canary.without)):
            chunks = self._noisy(self._one, scene, purpose, self._repetitions)
            scores = [(chunk - centre) @ direction for chunk in chunks]
            made.append(np.concatenate(scores) / self._scale)
        return made[0], made[1]

    def _epsilon(self, alpha: float) -> Outcome:
        bound = bounds.epsilon_lower_bound(*self._scores, alpha, self._delta)
        most = bounds.largest_bound(self._repetitions, alpha, self._delta)
        claimed = self.claimed_epsilon(self._delta)
        detail = f'{self._repetitions} repetitions a side'
        made = of_bound(bound, most, claimed, detail)
        return self._if_moved(self._one, made)

    def _gaussian(self, alpha: float) -> Outcome:
        mu = bounds.mu_lower_bound(*self._scores, alpha)
        claimed = 1 / self._m.noise_multiplier
        most = bounds.largest_mu(self._repetitions, alpha)
        detail = f'mu {mu:.4g} of {claimed:.4g} claimed'
        if most <= claimed:
            detail += f'; {self._repetitions} repetitions can show {most:.3g} at most'
            detail += f': {POWERLESS}'
        bound, epsilon = (
            bounds.gaussian_epsilon(m, self._delta) for m in (mu, claimed)
        )
        made = Outcome(mu <= claimed, bound, epsilon, detail, most > claimed)
        return self._if_moved(self._one, made)

    def _one_run(self, alpha: float) -> Outcome:
        crowd, delta = self._target.crowd, self._delta * ONE_RUN_DELTA
        number = len(crowd.places)
        rng = np.random.default_rng([self._seed, 1])
        is_in = rng.random(number) < 0.5
        there = np.zeros_like(crowd.batch.is_padding_example)
        there[is_in] = True
        (release,) = self._noisy(self._one, crowd.only(there), 'one run', 1)
        score = self._membership_scores(release[0])
        guesses = number // 2  # the surest quarter of each side
        order = np.argsort(score)
        correct = int(np.sum(is_in[order[-(guesses // 2) :]]))
        correct += int(np.sum(~is_in[order[: guesses // 2]]))
        bound, most = (
            bounds.one_run_lower_bound(number, guesses, right, alpha, delta)
            for right in (correct, guesses)
        )
        detail = f'at delta {delta:.0e} {correct} of {guesses} guesses right; all'
        made = of_bound(bound, most, self.claimed_epsilon(delta), detail)
        return self._if_moved(self._one, made)

    def _membership_scores(self, release: np.ndarray) -> np.ndarray:
        """[m]: each canary's coefficient in the release by least squares, standardised."""
        crowd = self._target.crowd
        alone = [self._by_itself(place) for place in crowd.places]
        centre = self._exact(self._one, alone[0].empty())
        moves = np.array([self._exact(self._one, scene) for scene in alone]) - centre
        inverse = np.linalg.pinv(moves, rcond=1e-6)
        spread = np.maximum(self._scale * np.linalg.norm(inverse, axis=0), 1e-30)
        return ((release - centre) @ inverse - 0.5) / spread

    def _by_itself(self, place: tuple[int, ...]) -> Scene:
        """One record of the crowd: without room for the others, where that is as good."""
        crowd, i = self._target.crowd, place[0]
        if self._target.in_place:
            return crowd.alone(place)
        return crowd._replace(batch=jax.tree.map(lambda x: x[i : i + 1], crowd.batch))

    # --- noise -------------------------------------------------------------------------

    def _level(self, number: int, draw: str, alpha: float) -> Outcome:
        noise = self._noise(number, draw)
        low, ratio, high = self._law_of.scale(noise, alpha)
        detail = f'over the plan: in [{low:.4f}, {high:.4f}], {noise.size} values'
        return Outcome(low <= 1 <= high, ratio, 1.0, detail)

    def _each_coordinate(self, number: int, alpha: float) -> Outcome:
        """One coordinate without noise is a release without noise."""
        noise = self._noise(number, 'empty draw')
        releases, size = noise.shape
        low, high = self._law_of.tails(noise)
        p = float(min(1.0, 2 * size * min(low.min(), high.min())))
        detail = f'p; each of {size} coordinates in {releases} releases'
        return Outcome(p >= alpha, p, alpha, detail)

    def _repeats(self, number: int, _: float) -> Outcome:
        """Coordinates that have the same noise, or its opposite: their sum has none."""
        noise = self._noise(number, 'empty draw')[:COMPARED_RELEASES]
        cells = np.rint(np.nan_to_num(noise) / CELL).astype(np.int64).T
        cells = np.ascontiguousarray(cells * np.where(cells[:, :1] < 0, -1, 1))
        repeated = len(cells) - len({column.tobytes() for column in cells})
        detail = f'repeated of {len(cells)} coordinates'
        return Outcome(repeated == 0, repeated, 0.0, detail)

    def _law(self, alpha: float) -> Outcome:
        values = self._noise(self._one, 'empty draw').ravel()[:200_000]
        p = float(stats.kstest(values, self._law_of.distribution).pvalue)
        against = f'p of Kolmogorov-Smirnov against the {self._law_of.distribution} law'
        return Outcome(p >= alpha, p, alpha, against)

    def _coordinates(self, alpha: float) -> Outcome:
        noise = self._noise(self._one, 'empty draw') / self._law_of.std
        return uncorrelated(noise[:, 1:], noise[:, :-1], alpha)


def uncorrelated(one: np.ndarray, other: np.ndarray, alpha: float) -> Outcome:
    """Whether normal values, of mean 0 and variance 1, are independent of others.

    Given the others, their sum weighted by these is normal, however few they are. Where
    `other` is a part of the same array as `one`, for many values alone.
    """
    a, b = one.ravel(), other.ravel()
    correlation = float(np.mean(a * b))
    length = max(float(np.linalg.norm(b)), 1e-30)
    p = float(2 * stats.norm.sf(abs(float(a @ b)) / length))
    detail = f'p; correlation {correlation:+.4f}, {a.size} values'
    return Outcome(p >= alpha, p, alpha, detail)
