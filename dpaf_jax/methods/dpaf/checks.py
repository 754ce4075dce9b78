"""Whether a config's settings for DPAF fit each other: looks at no image."""

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout
from dpaf_jax.privacy.budgets import check_batch_size
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.release.samplers.dpaf import LABELLER
from dpaf_jax.runtime.errors import UserError


def trains_phase1(config: Config) -> bool:
    """Whether phase 1 learns from private images."""
    return config.dpaf.classifier.private not in ('none', 'discriminator')


def trains_conv2(config: Config) -> bool:
    """Whether conv2* learns from private images."""
    return config.dpaf.conv2.gradient != 'none' or config.privacy.as_published


def check(config: Config, num_examples: int) -> None:
    """UserError where the settings do not fit each other, or N."""
    dpaf, k = config.dpaf, config.data.num_classes
    _check_published(config)
    make_tap_layout(config)
    aggregates = k if dpaf.batches == 'class_pure' else 1
    # As published every mechanism has DPAGG's batches.
    own = not config.privacy.as_published
    by_size = own and trains_phase1(config) and not dpaf.classifier.sampling_prob
    for field, size, used in (
        ('batch_size', dpaf.batch_size * aggregates, True),
        ('classifier.batch_size', dpaf.classifier.batch_size, by_size),
        ('conv2.batch_size', dpaf.conv2.batch_size, own and trains_conv2(config)),
    ):
        if used:
            check_batch_size(f'config.dpaf.{field}', size, num_examples)
    if dpaf.classes_per_step and (k % dpaf.classes_per_step or dpaf.batches == 'mixed'):
        raise UserError(
            'config.dpaf.classes_per_step',
            f'is {dpaf.classes_per_step}',
            f"Use a divisor of num_classes = {k} and batches = 'class_pure', or 0",
        )
    _check_classifier(config)
    _check_groups(
        'classifier', dpaf.classifier.unit == 'group', dpaf.classifier.num_groups
    )
    _check_groups('conv2', dpaf.conv2.gradient == 'group', dpaf.conv2.num_groups)
    _check_conv2(config)
    _check_taps(config)
    _check_losses(config)
    _check_labeller_fields(config)
    _check_whitenings(config)


def check_schedule(config: Config, dpagg: Mechanism, steps: int) -> None:
    """UserError where DPAGG's mechanism, of so many steps, does not fit the settings."""
    dpaf = config.dpaf
    if dpagg.sampling_prob == 1 and dpaf.n_critic != 1:
        raise UserError(
            'config.dpaf.n_critic',
            f'is {dpaf.n_critic}, but DPAGG sees every image at once',
            'Set it to 1: each release is followed by generator_steps steps',
        )
    if dpaf.batch_size and not dpaf.generator_steps:
        raise UserError(
            'config.dpaf.generator_steps',
            'is 0, which is for one aggregate of all images',
            'Set it to 1, or batch_size to 0',
        )
    if trains_conv2(config) and steps < dpaf.asymmetry:
        raise UserError(
            'config.dpaf.conv2.gradient',
            f'is {dpaf.conv2.gradient!r}, but conv2* is updated every {dpaf.asymmetry} '
            f'DPAGG steps and there are {steps}',
            "Set it to 'none', lower asymmetry, or raise epochs",
        )


def _check_published(config: Config) -> None:
    """The paper has mixed batches of a fixed size, and keeps no classifier."""
    dpaf = config.dpaf
    is_printed = dpaf.batches == 'mixed' and dpaf.batch_size
    if config.privacy.as_published and (
        not is_printed or dpaf.classifier.private == LABELLER
    ):
        raise UserError(
            'config.privacy.guarantee',
            "is 'as_published', but these settings are not the paper's (batches by class, "
            'one release of all, a labeller)',
            "Take a config's ':printed', such as configs/mnist.py:printed",
        )


def _check_classifier(config: Config) -> None:
    classifier = config.dpaf.classifier
    if classifier.private == LABELLER:
        if classifier.unit == 'group':
            raise UserError(
                'config.dpaf.classifier.unit',
                "is 'group', but a labeller learns from single records",
                "Set it to 'singleton'",
            )
        return
    fields = ['epochs', 'learning_rate'] if trains_phase1(config) else []
    if classifier.private == 'discriminator':
        fields = ['learning_rate']  # of conv1, as often as conv2*
    for field in fields:
        if not getattr(classifier, field):
            raise UserError(
                f'config.dpaf.classifier.{field}',
                'is 0, for which only a labeller has a rule',
                "Set it above 0, or private to 'labeller'",
            )


def _check_conv2(config: Config) -> None:
    conv2, private = config.dpaf.conv2, config.dpaf.classifier.private
    if conv2.gradient == 'group' and config.dpaf.batches == 'class_pure':
        raise UserError(
            'config.dpaf.conv2.gradient',
            "is 'group', which holds all classes, but the head judges class by class",
            "Set it to 'singleton', 'cotangent' or 'none', or batches to 'mixed'",
        )
    if private == 'discriminator' and not trains_conv2(config):
        raise UserError(
            'config.dpaf.classifier.private',
            "is 'discriminator', but conv2* does not learn, and conv1 learns as it does",
            "Set config.dpaf.conv2.gradient to another than 'none', or private to 'none'",
        )
    if conv2.with_conv1 and (
        conv2.gradient == 'none' or private in ('all', 'conv1', 'discriminator')
    ):
        raise UserError(
            'config.dpaf.conv2.with_conv1',
            'is True, but conv2* does not learn, or conv1 learns by itself',
            "Set config.dpaf.classifier.private to 'none' and conv2.gradient to another",
        )


def _check_groups(part: str, used: bool, number: int) -> None:
    if used and number < 2:
        raise UserError(
            f'config.dpaf.{part}.num_groups', f'is {number}', 'Use at least 2 groups'
        )


def _check_taps(config: Config) -> None:
    taps = make_tap_layout(config)
    needs_conv2 = config.dpaf.generator.adversarial or trains_conv2(config)
    if needs_conv2 and 'conv2' not in taps:
        raise UserError(
            'config.dpaf.taps',
            f'is {config.dpaf.taps!r}, but the discriminator reads conv2',
            "Add 'conv2', or use loss_match alone with conv2.gradient = 'none'",
        )
    if LABELLER in taps and config.dpaf.classifier.private != LABELLER:
        raise UserError(
            'config.dpaf.taps',
            f'is {config.dpaf.taps!r}, but no labeller is learnt',
            "Set config.dpaf.classifier.private to 'labeller', or tap something else",
        )


def _check_losses(config: Config) -> None:
    generator = config.dpaf.generator
    if not generator.adversarial and not generator.loss_match:
        raise UserError(
            'config.dpaf.generator',
            'has no loss with a weight above 0',
            'Set loss_single, loss_aggregate or loss_match',
        )
    if generator.loss_smooth and not generator.loss_match:
        raise UserError(
            'config.dpaf.generator.loss_smooth',
            f'is {generator.loss_smooth}, but no aggregates are matched',
            'Set it to 0, or loss_match above 0',
        )


def _check_labeller_fields(config: Config) -> None:
    for name in ('warp', 'warp_of_few'):
        asked = getattr(config.dpaf.generator, name)
        if asked and config.dpaf.classifier.private != LABELLER:
            raise UserError(
                f'config.dpaf.generator.{name}',
                f'is {asked}, but no labeller looks at images once they are bent',
                "Set it to 0, or config.dpaf.classifier.private to 'labeller'",
            )


def _check_whitenings(config: Config) -> None:
    generator = config.dpaf.generator
    if generator.whitenings and (
        not generator.loss_match
        or config.dpaf.batches != 'class_pure'
        or config.dpaf.batch_size
        or trains_conv2(config)
    ):
        raise UserError(
            'config.dpaf.generator.whitenings',
            f'is {generator.whitenings}, but no class aggregates of all images are matched',
            "Set it to 0; or loss_match, batches = 'class_pure', batch_size = 0 and "
            "conv2.gradient = 'none'",
        )
