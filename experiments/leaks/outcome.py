"""What an attack on a mechanism shows of its epsilon, as published and as certified."""

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

GUARANTEES = ('as_published', 'certified')
CONFIDENCE = 0.999  # of all bounds of a command together
EXIT_CAUGHT = 1
REHEARSALS = 50


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One game in one mode.

    Attributes:
        game: its name.
        guarantee: 'as_published' or 'certified'.
        epsilon1: claimed by the paper's theorem, or certified, for what is attacked.
        lower_bound: on epsilon.
        largest_bound: what so many trials could have shown at most.
        trials: on either side.
        noise_multiplier, sampling_prob, steps: of the mechanism.
    """

    game: str
    guarantee: str
    epsilon1: float
    lower_bound: float
    largest_bound: float
    trials: int
    noise_multiplier: float
    sampling_prob: float
    steps: int


def attack(game: Any, trials: int, alpha: float, seed: int = 0) -> Outcome:
    """Plays a game and bounds epsilon from below.

    Args:
        game: of games.py, or with the same fields.
        trials: on either side.
        alpha: chance that the bound is wrong.
        seed: of all coins.
    """
    from dpaf_jax.audit.bounds import epsilon_lower_bound, largest_bound

    plan, m = game.plan, game.mechanism
    played = [
        game.play(number, is_in, 4 * seed + i)
        for i, (number, is_in) in enumerate(
            [(REHEARSALS, False), (REHEARSALS, True), (trials, False), (trials, True)]
        )
    ]
    out, in_ = (game.score(moves, *played[:2]) for moves in played[2:])
    return Outcome(
        game=game.name,
        guarantee='as_published' if game.published else 'certified',
        epsilon1=game.epsilon,
        lower_bound=epsilon_lower_bound(in_, out, alpha, plan.delta),
        largest_bound=largest_bound(trials, alpha, plan.delta),
        trials=trials,
        noise_multiplier=m.noise_multiplier,
        sampling_prob=m.sampling_prob,
        steps=m.steps,
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """One game and mode a line."""
    head = (
        f'{"game":<11} {"mode":<13} {"sigma":>7} {"q":>7} {"steps":>5} {"trials":>6} '
        f'{"epsilon1":>9} {"lower bound":>12} {"(at most)":>10}'
    )
    rows = [
        f'{o.game:<11} {o.guarantee:<13} {o.noise_multiplier:>7.2f} '
        f'{o.sampling_prob:>7.2g} {o.steps:>5} {o.trials:>6} {o.epsilon1:>9.4f} '
        f'{o.lower_bound:>12.4f} {o.largest_bound:>10.2f}'
        + ('   EXCEEDED' if o.lower_bound > o.epsilon1 else '')
        for o in outcomes
    ]
    return '\n'.join([head, *rows])


def attack_all(games: Mapping[str, Callable[[str], Any]], trials: int) -> list[Outcome]:
    """Attacks both forms of each game, prints a table, and tells of each on the way.

    Args:
        games: by name, from a guarantee to what `attack` plays.
        trials: on either side.
    """
    start = time.monotonic()
    alpha = (1 - CONFIDENCE) / (len(games) * len(GUARANTEES))
    outcomes = []
    for name, make in games.items():
        for guarantee in GUARANTEES:
            outcomes.append(attack(make(guarantee), trials, alpha))
            seconds = time.monotonic() - start
            print(f'{name}, {guarantee}: {seconds:.0f} s', file=sys.stderr)
    print(table(outcomes))
    return outcomes


def content(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """As JSON has them."""
    attacks = [dataclasses.asdict(outcome) for outcome in outcomes]
    return {'confidence': CONFIDENCE, 'attacks': attacks}


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """EXIT_CAUGHT where a certified form was caught."""
    certified = [o for o in outcomes if o.guarantee == 'certified']
    return EXIT_CAUGHT if any(o.lower_bound > o.epsilon1 for o in certified) else 0
