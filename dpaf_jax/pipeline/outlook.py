"""What a run may be expected to give, before it has looked at an image.

Measured runs say it: those whose records per class, times epsilon, are nearest to what is
planned. That product orders them, since the noise of a class's aggregate is as large as
1 / epsilon records.
"""

import dataclasses
import math
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from dpaf_jax import methods
from dpaf_jax.config import MANY_RECORDS, Config, from_config_dict, undecided
from dpaf_jax.data import num_listed
from dpaf_jax.methods.dpaf.phase2.schedule import Schedule
from dpaf_jax.methods.dpaf.taps.features import along_axes
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout
from dpaf_jax.pipeline import decide
from dpaf_jax.privacy.plan import CERTIFIED, PrivacyPlan, describe
from dpaf_jax.runtime.text import between, factor, number

# Records per class times epsilon; nothing was measured below 147.
ROUGH, FAIR, GOOD = 100, 400, MANY_RECORDS
MOST_EPSILON = 10  # that is suggested: a larger one promises hardly anything
STRONG_EPSILON = 3  # above, the promise should not stand alone
OTHER_DPAF = 'dpaf without one-shot class aggregates and a labeller'
LARGEST = 32  # side of the images of all runs below
START_SECONDS = 30.0  # compilation, and a labeller
# For axes that taps are read along: random pictures of 32 x 32, and their features.
AXES_SECONDS = 45.0
# Of a generated image of 32 x 32 pixels, two CPU cores to itself; 2026-11-27.
IMAGE_SECONDS = 0.002
GROWTH = 1.3  # with the power of the number of pixels
LONG_SECONDS = 1800.0  # more is said to have a shorter way
# As good on faces of 64 x 64 as six times as many: docs/research/2026-11-30-faces-of-64.md.
SHORT_STEPS, SHORT_BATCH = 1000, 66
# Where a public network sees it, at 64 x 64 pixels, one core to itself; 2026-11-26.
SEEN_SECONDS = 0.007


class Measured(NamedTuple):
    """A run of `recommended.py`, from docs/results.csv: mean over generators.

    Attributes:
        data: its name there.
        shown: its name for people.
        num_classes: K.
        num_examples: N.
        epsilon: certified.
        accuracy: of a small CNN on real test images.
        ceiling: that of real training images; None where it was not measured.
    """

    data: str
    shown: str
    num_classes: int
    num_examples: int
    epsilon: float
    accuracy: float
    ceiling: float | None = None

    @property
    def strength(self) -> float:
        """Records per class, times epsilon."""
        return self.num_examples * self.epsilon / self.num_classes


MEASURED = (
    Measured('digits', 'digits, 8 × 8', 10, 1469, 1, 0.847),
    Measured('mnist', 'MNIST', 10, 1500, 1, 0.726),
    Measured('celeba10k_hair', 'faces, hair colour', 3, 8038, 1, 0.715, 0.879),
    Measured('celeba10k_gender', 'faces, gender', 2, 8038, 1, 0.785, 0.933),
    Measured('fashion_mnist', 'Fashion-MNIST', 10, 5000, 1, 0.758),
    Measured('mnist', 'MNIST', 10, 5000, 1, 0.910),
    Measured('digits', 'digits, 8 × 8', 10, 1469, 10, 0.957),
    Measured('mnist', 'MNIST', 10, 1500, 10, 0.924),
    Measured('cifar10', 'CIFAR-10', 10, 50000, 1, 0.486, 0.662),
    Measured('fashion_mnist', 'Fashion-MNIST', 10, 60000, 1, 0.845),
    Measured('mnist', 'MNIST', 10, 60000, 1, 0.966),
    Measured('celeba10k_gender', 'faces, gender', 2, 8038, 3, 0.859, 0.933),
    Measured('celeba10k_hair', 'faces, hair colour', 3, 8038, 3, 0.754, 0.879),
    Measured('celeba10k_hair', 'faces, hair colour', 3, 8038, 10, 0.762, 0.879),
    Measured('celeba10k_gender', 'faces, gender', 2, 8038, 10, 0.877, 0.933),
    Measured('cifar10', 'CIFAR-10', 10, 50000, 10, 0.507, 0.662),
    Measured('fashion_mnist', 'Fashion-MNIST', 10, 60000, 10, 0.863),
    Measured('mnist', 'MNIST', 10, 60000, 10, 0.974),
)
PHOTOGRAPHS = max((r for r in MEASURED if r.data == 'cifar10'), key=lambda r: r.epsilon)


@dataclasses.dataclass(frozen=True, repr=False)
class Outlook:
    """What was planned, and what to expect of it; its repr is for people.

    Attributes:
        privacy: the plan: mechanisms, noise, epsilon.
        strength: records per class, times epsilon; infinite without noise.
        verdict: in plain words.
        promise: what a certified epsilon means; '' for a plan without one.
        nearest: measured runs, nearest first; none of settings that were not measured so.
        seconds: of training, from a measured rate; None for other methods than DPAF's one
            release.
        shorter: a way to train in less time, where training is long; '' where none is known.
        decided: what was taken from the data and is public with a release, as lines; ''
            where nothing was.
    """

    privacy: PrivacyPlan
    strength: float
    verdict: str
    promise: str
    nearest: tuple[Measured, ...]
    seconds: float | None
    shorter: str = ''
    decided: str = ''

    def __repr__(self) -> str:
        return '\n'.join(
            filter(None, (self.decided, describe(self.privacy), self.text))
        )

    @property
    def text(self) -> str:
        """Everything but the mechanisms, as lines."""
        lines = [line for line in (self.verdict, self.promise) if line]
        if self.nearest:
            lines.append('Nearest measured runs of recommended settings (a small CNN):')
        lines += [f'  {_told(run)}' for run in self.nearest]
        if self.seconds is not None:
            time = between(self.seconds, 4 * self.seconds)
            lines.append(
                f'Training takes {time} on two CPU cores with nothing else to do.'
            )
        if self.shorter:
            lines.append(self.shorter)
        return '\n'.join(lines)


def plan(config: ConfigDict) -> Outlook:
    """Plans a run, and says what to expect: no image is decoded, nothing is written.

    Args:
        config: as for `synthesize`. Where fields are left to the data, they are looked at;
            where N alone is, records are counted.

    Raises:
        UserError: the config is wrong, or its epsilon cannot be met.

    Example:
        >>> from configs import recommended
        >>> config = recommended.get_config('digits')
        >>> config.data.num_examples = 1469
        >>> print(plan(config).verdict)
        1469 pictures of 10 classes at ε = 10: enough for fair images.
    """
    typed = from_config_dict(config, is_open=True)
    looked = decide.look(typed) if undecided(typed) else decide.Look({}, '', '')
    typed = decide.filled(typed, looked.decided)
    count = typed.data.num_examples or num_listed(typed.data)
    made = outlook(typed, methods.plan(typed, count))
    return dataclasses.replace(made, decided=looked.told)


def outlook(config: Config, privacy: PrivacyPlan) -> Outlook:
    """What to expect of a plan.

    Args:
        config: of the run.
        privacy: its plan.
    """
    config = config.with_num_examples(privacy.num_examples)
    certified = privacy.guarantee == CERTIFIED and config.privacy.is_private
    epsilon = config.privacy.epsilon if certified else math.inf
    strength = privacy.num_examples * epsilon / config.data.num_classes
    seconds = _seconds(config, privacy) if config.method == 'dpaf' else None
    return Outlook(
        privacy,
        strength,
        _verdict(config, privacy.num_examples, epsilon),
        _promise(config, privacy),
        _nearest(strength) if certified and _is_measured(config) else (),
        seconds,
        _shorter(config, privacy) if seconds and seconds > LONG_SECONDS else '',
    )


def _promise(config: Config, privacy: PrivacyPlan) -> str:
    if privacy.guarantee != CERTIFIED or not privacy.epsilon:
        return ''
    times = factor(privacy.epsilon)
    unit = 'group' if config.data.group else _record(config)
    weak = ' That is weak by itself.' if privacy.epsilon > STRONG_EPSILON else ''
    return (
        f'One {unit} more or less makes any outcome at most {times} times as likely, but for '
        f'a chance of {privacy.delta:g}.{weak}'
    )


def _nearest(strength: float) -> tuple[Measured, ...]:
    """Three measured runs, nearest first."""
    by_distance = sorted(
        MEASURED, key=lambda run: abs(math.log(run.strength / strength))
    )
    return tuple(by_distance[:3])


def _is_measured(config: Config) -> bool:
    """Whether the runs above are of such settings: one-shot class aggregates, labelled."""
    if config.method != 'dpaf':
        return False
    settings: Any = config.dpaf
    one_shot = settings.batches == 'class_pure' and not settings.batch_size
    return bool(one_shot and settings.classifier.private == 'labeller')


def _verdict(config: Config, count: int, epsilon: float) -> str:
    data = config.data
    records = _counted(count, _record(config), 's')
    head = f'{records} of {_counted(data.num_classes, "class", "es")}'
    if math.isinf(epsilon):
        return f'{head}: nothing is certified.'
    head = f'{head} at ε = {number(epsilon)}'
    if not _is_measured(config):
        method = config.method if config.method != 'dpaf' else OTHER_DPAF
        told = (
            f'{head}. No forecast for {method}: docs/results.md has what was measured.'
        )
        if data.columns or count * epsilon / data.num_classes >= ROUGH:
            return told
        return (
            f'{told} TOO FEW all the same: of less than {ROUGH} per class, times ε, the '
            'recommended settings make noise.'
        )
    expected = _expected(data.num_classes, count, epsilon)
    return f'{head}: {expected}{_colour(data.channels)}{_beyond(data.image_size)}'


def _record(config: Config) -> str:
    return 'row' if config.data.columns else 'picture'


def _counted(count: int, word: str, plural: str) -> str:
    return f'{count} {word}{plural if count != 1 else ""}'


def _expected(classes: int, count: int, epsilon: float) -> str:
    """The words of docs/howto/owners_before.md for so many records and this epsilon."""
    strength = count * epsilon / classes
    if strength < ROUGH:
        wanted = _rounded_up(ROUGH * classes / epsilon)
        rough = f'TOO FEW. Expect noise. From {wanted} on images are rough at this ε'
        enough = math.ceil(10 * ROUGH * classes / count) / 10
        if enough > MOST_EPSILON:
            return f'{rough}. More are needed: a larger ε alone will not do.'
        return f'{rough}, or from ε = {number(enough)} on with these.'
    if strength < FAIR:
        wanted = _rounded_up(FAIR * classes / epsilon)
        return f'enough for rough images; from {wanted} on they are fair.'
    if strength < GOOD:
        return 'enough for fair images.'
    return 'enough for good images; more help less and less.'


def _colour(channels: int) -> str:
    if channels == 1:
        return ''
    return (
        ' The words are of grey shapes: photographs come out worse '
        f'({PHOTOGRAPHS.shown} {PHOTOGRAPHS.accuracy:.2f}, where real images teach '
        f'{PHOTOGRAPHS.ceiling:.2f}).'
    )


def _beyond(side: int) -> str:
    if side <= LARGEST:
        return ''
    return (
        f' That is known up to {LARGEST} x {LARGEST}: expect less at {side} x {side}.'
    )


def _rounded_up(value: float) -> int:
    """To two digits."""
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit) * unit


def _told(run: Measured) -> str:
    ceiling = f', by real images {run.ceiling:.2f}' if run.ceiling else ''
    return (
        f'{run.accuracy:.2f}{ceiling}: {run.shown}, {run.num_examples} in '
        f'{run.num_classes} classes at ε = {number(run.epsilon)}'
    )


def _seconds(config: Config, privacy: PrivacyPlan) -> float | None:
    settings: Any = config.dpaf
    if settings.batch_size:
        return None
    height, width, _ = config.data.shape
    pixels = height * width / 32**2
    seconds = IMAGE_SECONDS * pixels**GROWTH
    if config.public_features:  # larger images are seen at 128 x 128
        seconds += SEEN_SECONDS * (4 if height > 64 else 1)
    times = 2 if config.warm_start else 1  # on public images first
    made = _images_made(config, privacy)
    start = START_SECONDS + AXES_SECONDS * pixels * bool(along_axes(config))
    return float(times * (start + made * seconds))


def _images_made(config: Config, privacy: PrivacyPlan) -> int:
    """How many the generator makes in training."""
    schedule = Schedule(config, privacy, make_tap_layout(config))
    return int(schedule.generator_steps * config.dpaf.generator.batch_size)


def _shorter(config: Config, privacy: PrivacyPlan) -> str:
    """With fewer images, as measured."""
    share = _images_made(config, privacy) / (SHORT_STEPS * SHORT_BATCH)
    if not _is_measured(config) or share < 2:
        return ''
    return (
        f'In 1/{round(share)} of that: --config.dpaf.generator_steps={SHORT_STEPS} '
        f'--config.dpaf.generator.batch_size={SHORT_BATCH}. That was as good on faces of '
        '64 x 64 (docs/research/2026-11-30-faces-of-64.md).'
    )
