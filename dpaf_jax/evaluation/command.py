"""What `python -m dpaf_jax.evaluate` does, without its flags."""

from typing import Any, NamedTuple

import numpy as np

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation import images, printout, suite, utility
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.release.pictures import png_bytes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import Teller


class Sides(NamedTuple):
    """What is compared: images of one shape, and K."""

    synthetic: Labelled
    train: Labelled
    test: Labelled
    num_classes: int


def opened(real: str, synthetic: str, num: int, **settings: Any) -> Sides:
    """Reads both sides; real images are brought to the size of the synthetic ones.

    Args:
        real: a path or a source.
        synthetic: a path, a source or a release.
        num: images of a release.
        settings: fields of `DataConfig` that are given; others are those of a release, so
            that its real images are split as its run split them.

    Raises:
        UserError: one of them is not there, or its labels are others.
    """
    data = images.alike(real, synthetic, settings)
    own = images.class_names(synthetic, data, '--synthetic')
    others = images.class_names(real, data, '--real')
    train, test = images.real(real, data)
    if not (data.test_fraction or 'test_fraction' in settings or len(train.labels)):
        problem = "is what the release's run trained on: it held nothing out"
        remedy = 'Give other images, with --test_fraction=0'
        raise UserError('--real', problem, remedy)
    made = images.synthetic(synthetic, num, data)
    if own and others and own != others:
        numbers = [all(map(str.isdecimal, names)) for names in (own, others)]
        if not any(numbers):
            raise UserError(
                f'--synthetic: {synthetic}',
                f'has the classes {", ".join(own)}, but --real has {", ".join(others)}',
                'Give both the same classes: they are numbered by their sorted names; an '
                '.npz file has numbers alone',
            )
        if all(numbers):  # such as 0 to 9 against 0 to 8, or 1, 10, 2 against 1, 2, 10
            made = _by_number(made, own)
            train, test = (_by_number(each, others) for each in (train, test))
    least = min(int(labels.min()) for _, labels in (made, test))
    if least < 0:
        raise UserError(synthetic, 'has a label below 0', 'Number classes from 0')
    num_made = max(images.stated_classes(synthetic), _num_classes(made))
    num_real = _num_classes(train, test)
    # Of a side without classes nothing is asked but fidelity.
    if num_made != num_real and min(num_made, num_real) > 1:
        raise UserError(
            f'--synthetic: {synthetic}',
            f'has {num_made} classes, but --real has {num_real}',
            'Give both the same classes',
        )
    return Sides(made, train, test, max(num_made, num_real))


def _num_classes(*sides: Labelled) -> int:
    return 1 + max(int(labels.max()) for _, labels in sides if len(labels))


def _by_number(side: Labelled, names: tuple[str, ...]) -> Labelled:
    """Labels by what the names of classes say, not by their order."""
    numbers = np.array(names).astype(np.int32)
    if np.array_equal(numbers, np.arange(len(names))):
        return side  # also an archive's labels, which are numbers as they are
    return Labelled(side.images, numbers[side.labels])


def check(settings: dict[str, Any]) -> None:
    """Refuses a wrong file of weights, before images are decoded or drawn; UserError."""
    suite.inception_weights(EvaluationConfig(**settings))


def evaluated(sides: Sides, settings: dict[str, Any], teller: Teller) -> dict[str, Any]:
    """The whole report: see `printout.table`."""
    config = EvaluationConfig(**settings)
    report: dict[str, Any] = {'settings': settings, 'notices': suite.notices(config)}
    for line in report['notices']:
        teller.say(line)
    height, width, channels = sides.test.images.shape[1:]
    teller.say(
        f'{len(sides.synthetic.labels)} synthetic images, {len(sides.test.labels)} real '
        f'test images, {sides.num_classes} classes; compared at {height} x {width}, '
        f'{"grey" if channels == 1 else "colour"}'
    )
    report['floor'] = utility.floor(sides.test.labels)
    with_real = config.train_on_real and len(sides.train.labels)
    if with_real:
        config = suite.alike(config, sides.synthetic, sides.train, sides.test)
    measured = suite.Suite(sides.test, sides.num_classes, config)
    report['synthetic'] = measured.evaluate(sides.synthetic, teller)
    if with_real:
        teller.say(f'the same with {len(sides.train.labels)} real training images')
        report['real'] = measured.evaluate(sides.train, teller)
        report['calibrated'] = suite.calibrated(
            report['synthetic']['utility'], report['real']['utility']
        )
    return report


def picture(sides: Sides) -> bytes:
    """A PNG of real and synthetic images side by side."""
    return png_bytes(
        printout.side_by_side(sides.test, sides.synthetic, sides.num_classes)
    )
