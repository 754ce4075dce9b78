"""The classes of both sides of a comparison, brought to the same numbers."""

import numpy as np

from dpaf_jax.config import MOST_CLASSES
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.runtime.errors import UserError

MOST_NAMED = 10  # classes in a message


def check_names(synthetic: tuple[str, ...], real: tuple[str, ...], where: str) -> None:
    """Refuses classes of other names: 'dog' would be judged as the real 'cat'.

    Args:
        synthetic, real: by label; () for numbers alone. Names that are numbers are matched
            by them (`by_number`), whatever the other side's are.
        where: what messages call the synthetic side.

    Raises:
        UserError: both have names, and others.
    """
    both = synthetic, real
    if not all(both) or synthetic == real or any(map(_are_numbers, both)):
        return
    raise UserError(
        where,
        f'has the classes {", ".join(synthetic)}, but --real has {", ".join(real)}',
        'Give both the same classes: they are numbered by their sorted names; an .npz file '
        'has numbers alone',
    )


def by_number(side: Labelled, names: tuple[str, ...], where: str) -> Labelled:
    """Labels by the numbers that classes are called, not by the order of these as texts.

    Args:
        side: labelled by the place of a class in `names`.
        names: its classes; other names than numbers change nothing.
        where: what messages call the side.

    Raises:
        UserError: a number is too large.
    """
    if not _are_numbers(names):
        return side
    numbers = [int(name) for name in names]
    if max(numbers) >= MOST_CLASSES:
        problem = f'has a class {max(numbers)}, which is not below {MOST_CLASSES}'
        raise UserError(where, problem, 'Number classes from 0')
    if numbers == list(range(len(numbers))):
        return side  # also an archive's labels, which are numbers as they are
    return Labelled(side.images, np.array(numbers, np.int32)[side.labels])


def _are_numbers(names: tuple[str, ...]) -> bool:
    return bool(names) and all(map(str.isdecimal, names))


def num_classes(
    made: Labelled,
    real: tuple[Labelled, Labelled],
    names: tuple[str, ...],
    stated: int,
    where: str,
) -> int:
    """K of a comparison.

    Args:
        made: the synthetic side.
        real: training and test images.
        names: of the real classes; a class of the last name may have no image.
        stated: how many classes a release has; 0: there is none.
        where: what messages call the synthetic side.

    Raises:
        UserError: the release has another number, or a synthetic label is no real class.
    """
    of_real = 1 + max(int(side.labels.max(initial=0)) for side in real)
    if not _are_numbers(names):
        of_real = max(of_real, len(names))
    largest = int(made.labels.max())
    if of_real == 1 or stated == 1:  # without classes: nothing is asked but fidelity
        return max(of_real, stated, largest + 1)
    if stated and stated != of_real:
        problem = f'has {stated} classes, but --real has {of_real}'
        raise UserError(where, problem, 'Give both the same classes')
    if largest >= of_real:
        problem = f'has the label {largest}, but --real has {of_real} classes'
        raise UserError(where, problem, 'Give both the same classes, numbered from 0')
    return of_real


def not_drawn(made: Labelled, test: Labelled) -> str:
    """Says which classes have test images and no synthetic one; '' if none.

    Of a side of one class nothing is said: it has no accuracy anyway.
    """
    absent = np.setdiff1d(test.labels, made.labels).tolist()
    if not absent or not np.ptp(made.labels):
        return ''
    more = ', ...' * (len(absent) > MOST_NAMED)
    listed = ', '.join(map(str, absent[:MOST_NAMED]))
    return f'real classes without a synthetic image: {listed}{more}'
