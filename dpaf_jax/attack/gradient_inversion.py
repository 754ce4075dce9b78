"""Gradient inversion: an image is fitted to the gradient that training takes of it.

DPBA-WGAN, section V-E (Table 3, Figures 7 and 10). A small classifier learns from one
real image at a time; at each of its iterations an attacker sees the parameters and what a
strategy makes of the gradient, and fits an image to it by descent. As printed, the attack
succeeds once the fitted gradient, the squared distance, is below 1; that is also so where
the true gradient is small. So it is said, too, how many images were recovered, and by an
attacker who knows what noise on a cost does: it multiplies gradients of the cost's
terms, so he fits the space that they span.

Strategies, all on one trajectory of parameters: none; `fixed` and `dynamic`, the cost
times a normal draw of mean 1 and scale 1, or between 1 and 2; `bilateral`, a coin picks
one of the cost's two terms for it (cross-entropy is -z_y + log sum exp z); `certified`,
the clipped gradient plus Gaussian noise of the clip bound on every coordinate.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from dpaf_jax.attack.gradient_inversion_pictures import heat_maps, recovered_images
from dpaf_jax.attack.target import Target
from dpaf_jax.privacy.clipping import clip_vector
from dpaf_jax.runtime.errors import UserError

STRATEGIES = ('none', 'fixed', 'dynamic', 'bilateral', 'certified')
SCALES = {
    'none': '-', 'fixed': '1', 'dynamic': '[1, 2]', 'bilateral': '[1, 2]',
    'certified': '1 x clip',
}  # fmt: skip
ATTACKERS = ('as printed', 'span')
HIDDEN, RATE = 64, 0.05  # of the classifier
STEP = 0.1  # of the attacker's Adam
CLIP = 1.0
SUCCESS = 1.0  # the fitted gradient is below this
RECOVERED = 0.01  # mean squared error of pixels in [0, 1] is below this
CHUNK = 50  # attacks side by side


class Scene(NamedTuple):
    """What is attacked at one iteration.

    Attributes:
        params: [P] float32, the classifier's.
        image: [d] float32 in [0, 1].
        label: int32.
    """

    params: jax.Array
    image: jax.Array
    label: jax.Array


class Fits(NamedTuple):
    """Attacks on all iterations.

    Attributes:
        fitted: [iterations, attempts] squared distance of the gradients.
        images: [iterations, d] what was found.
        error: [iterations] mean squared error of its pixels.
    """

    fitted: np.ndarray
    images: np.ndarray
    error: np.ndarray


def run(target: Target, iterations: int = 500, attempts: int = 300) -> dict[str, Any]:
    """Trains, attacks each iteration, writes figures and pictures; returns the figures.

    Args:
        target: its real images and labels.
        iterations: of training, each attacked.
        attempts: steps of each attack.

    Raises:
        UserError: the run is of a table: what is recovered is judged as a picture.
    """
    if target.columns:
        raise UserError(
            '--attack',
            'is gradient_inversion, which recovers images, and the run is of a table',
            'Choose membership or memorisation',
        )
    scenes = train(target.members, target.labels, iterations)
    classes = classes_of(target.labels)
    pairs = [(strategy, by) for strategy in STRATEGIES for by in ATTACKERS]
    found = {}
    for i, (strategy, by) in enumerate(pairs, 1):
        print(f'{i} of {len(pairs)}: noise {strategy}, attacker {by}', flush=True)
        found[strategy, by] = attack(scenes, classes, strategy, by, attempts)
    made = {
        'iterations': iterations,
        'attempts': attempts,
        'success_below': SUCCESS,
        'recovered_below': RECOVERED,
        'strategies': {name: _figures(name, found) for name in STRATEGIES},
    }
    target.write_json('gradient_inversion', made)
    printed = {name: found[name, 'as printed'].fitted for name in STRATEGIES}
    target.write_png('gradient_inversion_fits', heat_maps(printed, SUCCESS))
    shape = target.members.shape[1:]
    rows = {'private': np.asarray(scenes.image)} | {
        f'{name}, {attacker}': found[name, attacker].images
        for attacker in ATTACKERS
        for name in STRATEGIES
    }
    picture = recovered_images({name: _tiles(x, shape) for name, x in rows.items()})
    target.write_png('gradient_inversion_images', picture)
    return made


def _tiles(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.round(255 * np.clip(images, 0, 1)).astype(np.uint8).reshape(-1, *shape)


def _figures(name: str, found: dict[tuple[str, str], Fits]) -> dict[str, Any]:
    printed = found[name, 'as printed']
    below = printed.fitted < SUCCESS
    success = int(np.sum(below.any(axis=1)))
    first = np.argmax(below, axis=1)[below.any(axis=1)] + 1
    return {
        'noise_scale': SCALES[name],
        'success': success,
        'failure': len(below) - success,
        'anti_attack_rate': 1 - success / len(below),
        'median_attempts_to_success': float(np.median(first)) if success else None,
        'recovered': {
            attacker: int(np.sum(found[name, attacker].error < RECOVERED))
            for attacker in ATTACKERS
        },
    }


def table(made: dict[str, Any]) -> str:
    """Table 3 of the paper, and how many images each attacker recovered."""
    lines = [
        f'{"strategy":<11} {"noise scale":<12} {"success":>8} {"failure":>8} '
        f'{"anti-attack rate":>17} {"recovered: as printed":>22} {"span":>6}'
    ]
    for name, f in made['strategies'].items():
        recovered = f['recovered']
        lines.append(
            f'{name:<11} {f["noise_scale"]:<12} {f["success"]:>8} {f["failure"]:>8} '
            f'{f["anti_attack_rate"]:>17.1%} {recovered["as printed"]:>22} '
            f'{recovered["span"]:>6}'
        )
    lines.append(
        f'{made["iterations"]} iterations, {made["attempts"]} attempts; success: fitted '
        f'gradient below {SUCCESS:g}; recovered: mean squared error below {RECOVERED:g}'
    )
    return '\n'.join(lines)


# --- the classifier -------------------------------------------------------------------


def _shapes(pixels: int, classes: int) -> tuple[Any, int]:
    params = [
        (np.zeros((pixels, HIDDEN), np.float32), np.zeros(HIDDEN, np.float32)),
        (np.zeros((HIDDEN, classes), np.float32), np.zeros(classes, np.float32)),
    ]
    vector, unravel = ravel_pytree(params)
    return unravel, len(vector)


def _logits(params: jax.Array, image: jax.Array, classes: int) -> jax.Array:
    (w1, b1), (w2, b2) = _shapes(image.shape[0], classes)[0](params)
    logits: jax.Array = jax.nn.sigmoid(image @ w1 + b1) @ w2 + b2
    return logits


def terms(scene: Scene, classes: int) -> jax.Array:
    """[2, P] gradients of the two terms of cross-entropy: -z_y, and log sum exp z."""

    def both(params: jax.Array) -> jax.Array:
        z = _logits(params, scene.image, classes)
        return jnp.stack([-z[scene.label], jax.nn.logsumexp(z)])

    return jax.jacrev(both)(scene.params)


def classes_of(labels: np.ndarray) -> int:
    """How many there are, numbered from 0."""
    return int(np.max(labels)) + 1


def train(images: np.ndarray, labels: np.ndarray, iterations: int) -> Scene:
    """Plain descent on one image at a time; every iteration, before its step.

    Returns:
        A `Scene` with a leading axis [iterations].
    """
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(images), size=iterations)
    flat = np.asarray(images[np.sort(chosen)], np.float32).reshape(iterations, -1) / 255
    order = np.argsort(np.argsort(chosen, kind='stable'), kind='stable')
    flat, y = flat[order], np.asarray(labels)[chosen].astype(np.int32)
    classes = classes_of(labels)
    unravel, size = _shapes(flat.shape[1], classes)
    start = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape) / np.sqrt(max(leaf.shape[0], 1)),
        unravel(np.zeros(size, np.float32)),
    )

    def step(params: jax.Array, xs: Any) -> tuple[jax.Array, Scene]:
        scene = Scene(params, *xs)
        return params - RATE * jnp.sum(terms(scene, classes), axis=0), scene

    first = jnp.asarray(ravel_pytree(start)[0], jnp.float32)
    return jax.jit(lambda p, xs: jax.lax.scan(step, p, xs)[1])(first, (flat, y))


def observed(
    strategy: str, gradients: jax.Array, rng: np.random.Generator
) -> np.ndarray:
    """What the attacker sees of one iteration's [2, P] terms.

    Args:
        strategy: one of `STRATEGIES`.
        gradients: of the two terms.
        rng: secret.
    """
    whole = np.asarray(gradients).sum(axis=0)
    if strategy == 'certified':
        clipped = np.asarray(clip_vector(whole, CLIP))
        return clipped + CLIP * rng.normal(size=whole.shape).astype(np.float32)
    scale = {'none': 0.0, 'fixed': 1.0}.get(strategy, rng.uniform(1, 2))
    factors = np.full(2, 1 + scale * rng.normal())
    if strategy == 'bilateral':
        factors[rng.integers(2)] = 1.0
    seen: np.ndarray = factors.astype(np.float32) @ np.asarray(gradients)
    return seen


# --- the attack -----------------------------------------------------------------------


def attack(
    scenes: Scene, classes: int, strategy: str, attacker: str, attempts: int
) -> Fits:
    """Attacks every iteration.

    Args:
        scenes: with a leading axis [iterations].
        classes: of all labels, drawn or not.
        strategy: what protects the gradient.
        attacker: one of `ATTACKERS`; both know the label.
        attempts: steps of descent.
    """
    gradients = np.asarray(
        jax.lax.map(lambda s: terms(s, classes), scenes, batch_size=CHUNK)
    )
    rng = np.random.default_rng(STRATEGIES.index(strategy))
    seen = np.stack([observed(strategy, g, rng) for g in gradients])
    start = rng.uniform(size=np.shape(scenes.image)).astype(np.float32)
    fit = _compiled(attempts, classes, attacker)
    parts = []
    for i in range(0, len(seen), CHUNK):
        some = jax.tree.map(lambda x, i=i: x[i : i + CHUNK], scenes)
        parts.append(fit(some, seen[i : i + CHUNK], start[i : i + CHUNK]))
    fitted, images = (np.concatenate(x) for x in zip(*parts, strict=True))
    error = np.mean(np.square(images - np.asarray(scenes.image)), axis=1)
    return Fits(fitted, images, error)


@functools.cache
def _compiled(attempts: int, classes: int, by: str) -> Callable[..., Any]:
    fit = functools.partial(_fit, attempts=attempts, classes=classes, by=by)
    return jax.jit(jax.vmap(fit))


def _fit(
    scene: Scene,
    seen: jax.Array,
    start: jax.Array,
    *,
    attempts: int,
    classes: int,
    by: str,
) -> tuple[jax.Array, jax.Array]:
    """[attempts] squared distances along the way, and the image, in [0, 1], at the end."""
    adam = optax.adam(STEP)

    def loss(pixels: jax.Array) -> tuple[jax.Array, jax.Array]:
        guess = terms(scene._replace(image=jax.nn.sigmoid(pixels)), classes)
        square = jnp.sum(jnp.square(jnp.sum(guess, axis=0) - seen))
        if by == 'as printed':
            return square, square
        return _outside(guess, seen), square

    def attempt(state: Any, _: None) -> Any:
        pixels, moments = state
        gradient, square = jax.grad(loss, has_aux=True)(pixels)
        updates, moments = adam.update(gradient, moments)
        return (optax.apply_updates(pixels, updates), moments), square

    pixels = jax.scipy.special.logit(0.1 + 0.8 * start)
    (pixels, _), squares = jax.lax.scan(
        attempt, (pixels, adam.init(pixels)), None, attempts
    )
    return squares, jax.nn.sigmoid(pixels)


def _outside(guess: jax.Array, seen: jax.Array) -> jax.Array:
    """Share of `seen` [P] that lies outside the span of the rows of `guess` [2, P]."""
    gram = guess @ guess.T
    ridge = 1e-6 * jnp.trace(gram) * jnp.eye(len(guess))
    inner = guess @ seen
    inside = inner @ jnp.linalg.solve(gram + ridge, inner)
    return 1 - inside / jnp.maximum(jnp.sum(jnp.square(seen)), 1e-12)
