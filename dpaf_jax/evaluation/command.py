"""What `python -m dpaf_jax.evaluate` does, without its flags."""

from typing import Any, NamedTuple

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation import classes, images, printout, suite, utility
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.release.pictures import png_bytes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import Teller


class Sides(NamedTuple):
    """What is compared.

    Attributes:
        synthetic, train, test: images of one shape.
        num_classes: K.
        notes: what whoever reads the figures should know of the images.
    """

    synthetic: Labelled
    train: Labelled
    test: Labelled
    num_classes: int
    notes: tuple[str, ...] = ()


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
    of_run = '' if 'test_fraction' in settings else images.kind_of_run(synthetic)
    train, test = images.real(real, data, of_run)
    if not (data.test_fraction or 'test_fraction' in settings or len(train.labels)):
        problem = "is what the release's run trained on: it held nothing out"
        remedy = 'Give other images, with --test_fraction=0'
        raise UserError('--real', problem, remedy)
    made, left_out = images.synthetic(synthetic, num, data)
    where = f'--synthetic: {synthetic}'
    classes.check_names(own, others, where)
    made = classes.by_number(made, own, where)
    train, test = (
        classes.by_number(side, others, f'--real: {real}') for side in (train, test)
    )
    number = classes.num_classes(
        made, (train, test), others, images.stated_classes(synthetic), where
    )
    notes = [
        f'{left_out} images of the synthetic test split are left out' * bool(left_out),
        classes.not_drawn(made, test),
    ]
    return Sides(made, train, test, number, tuple(filter(None, notes)))


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
    suite.check_side(config, height)
    teller.say(
        f'{len(sides.synthetic.labels)} synthetic images, {len(sides.test.labels)} real '
        f'test images, {sides.num_classes} classes; compared at {height} x {width}, '
        f'{"grey" if channels == 1 else "colour"}'
    )
    report['notes'] = list(sides.notes)
    for line in sides.notes:
        teller.say(line)
    report['floor'] = utility.floor(sides.test.labels)
    with_real = config.train_on_real and len(sides.train.labels)
    config = suite.alike(config, sides.synthetic, sides.test)
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
