"""What the samples teach about real test images; epsilon covers none of it.

Accuracies of synthetic images go to the run's report, and into the card where the test set
is public. What real training images give, where asked for, goes under `nonprivate/` and from
there into the report.
"""

import io
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpaf_jax.config import Config, EvaluationConfig, public_dict
from dpaf_jax.data import load, prepare, read_manifest
from dpaf_jax.evaluation import suite, utility
from dpaf_jax.pipeline.figures import OWN
from dpaf_jax.pipeline.stages import samples
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.release.bundle import CARD, CONFIG, canonical_json, load_release
from dpaf_jax.release.card import model_card
from dpaf_jax.release.export import read_npz
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json, write_json, write_text
from dpaf_jax.training.progress import Progress

SHAPES_RESULTS = ('samples', 'evaluation', 'release')  # sections read after the release
INCEPTION = 'inception_sha256'  # of the weights of FID; no path leaves the config
Arrays = tuple[np.ndarray, np.ndarray]  # images or rows, and labels


def asked(config: Config) -> dict[str, Any]:
    """The fields that decide what is measured."""
    fields = public_dict(config)
    return {name: fields[name] for name in SHAPES_RESULTS}


def is_current(evaluated: dict[str, Any] | None, config: Config) -> bool:
    """Whether evaluation.json is of what is asked for, by all that is installed now."""
    if not evaluated or evaluated['config'] != asked(config):
        return False
    wanted = _inception(config)
    if wanted and wanted != evaluated.get(INCEPTION):
        return False
    lacked = evaluated.get('lacked', [])
    return not lacked or lacked == suite.notices(config.evaluation)


def _inception(config: Config) -> str:
    """The checksum of the Inception weights that are named; '' if none are."""
    weights = suite.inception_weights(config.evaluation)
    return weights.sha256 if weights else ''


def run(job: Job) -> dict[str, Any]:
    """Trains on synthetic, tests on real: not covered by epsilon."""
    workdir, config = job.workdir, job.config
    job.require(workdir.samples, 'samples')
    before = read_json(workdir.evaluation)
    if before and is_current(before, config):
        return before['accuracy']
    if read_manifest(job.data_directory) is None:  # deleted since the release was made
        prepare(config.data, job.data_directory)
    data = load(config.data, job.data_directory)
    test = np.asarray(data.test_images), np.asarray(data.test_labels)
    if not len(test[1]):
        logging.warning('Not evaluated: data.test_fraction = 0 holds nothing out')
        nothing = {
            'config': asked(config),
            'accuracy': {},
            INCEPTION: _inception(config),
        }
        write_json(workdir.evaluation, nothing)
        return {}
    made, settings = _samples(job), config.evaluation
    train = np.asarray(data.images), np.asarray(data.labels)
    if settings.train_on_real:
        # How many real training images there are may be private: no part in what is told.
        sides = (suite.Labelled(*side) for side in (made, test))
        settings = suite.alike(settings, *sides)
    found = _measured(job, settings, made, test)
    accuracy = {'synthetic': found['utility'], **_labeller(job, test)}
    if settings.train_on_real:
        real = _measured(job, settings, train, test, tells=False)
        ceiling = {
            'real': real['utility'],
            'fidelity': real['fidelity'],
            'calibrated': suite.calibrated(found['utility'], real['utility']),
        }
        write_json(workdir.make_nonprivate() / 'evaluation.json', ceiling)
    _state_in_release(job, found['utility'])
    evaluated = {
        'config': asked(config),
        'accuracy': accuracy,
        'floor': _protocol(config).floor(test[1]),
        'fidelity': found['fidelity'],
        INCEPTION: _inception(config),
        'lacked': [] if config.data.columns else suite.notices(config.evaluation),
    }
    write_json(workdir.evaluation, evaluated)
    return accuracy


def _labeller(job: Job, test: Arrays) -> dict[str, Any]:
    """How often the release's own labeller is right; nothing where it has none."""
    release = load_release(job.workdir.release)
    if not release.has_labeller:
        return {}
    right = float(np.mean(release.label(test[0]) == test[1]))
    return {OWN: {'labeller': {'mean': right, 'std': 0.0, 'values': [right]}}}


def _samples(job: Job) -> Arrays:
    """The synthetic data set; UserError where it is of another size than asked for."""
    made, wanted = read_npz(job.workdir.samples), samples.wanted(job)
    if len(made[1]) != wanted:
        raise UserError(
            'config.samples.num',
            f'asks for {wanted}, and {job.workdir.samples} has {len(made[1])}',
            'Run --stage=samples first, or give its number',
        )
    return made


def _protocol(config: Config) -> Any:
    if not config.data.columns:
        return utility
    from dpaf_jax.evaluation import tables  # late: scikit-learn is slow

    return tables


def _measured(
    job: Job,
    settings: EvaluationConfig,
    source: Arrays,
    test: Arrays,
    tells: bool = True,
) -> dict[str, Any]:
    """Utility of images or rows, and fidelity of images.

    `tells`: with progress on the way. How many steps real images take says how many there
    are, and that is private where N counts empty records.
    """
    data = job.config.data
    protocol = _protocol(job.config)
    steps = protocol.total_steps(source[0], settings)
    stream = None if tells else io.StringIO()
    size, records = settings.batch_size, data.records
    progress = Progress('evaluate', steps, size, stream=stream, records=records)

    def on_progress(step: int, metrics: Mapping[str, Any]) -> None:
        job.stop.check('evaluate')
        progress.update(step, metrics)

    if data.columns:
        made = protocol.evaluate(
            *source, *test, data.num_classes, settings, on_progress=on_progress
        )
        found: dict[str, Any] = {'utility': made, 'fidelity': {}}
    else:
        for line in suite.notices(settings):
            logging.warning(line)
        found = suite.evaluate(
            suite.Labelled(*source),
            suite.Labelled(*test),
            data.num_classes,
            settings,
            lambda line: logging.info('evaluate: %s', line) if tells else None,
            on_progress,
        )
    progress.close()
    return found


def _state_in_release(job: Job, made: dict[str, Any]) -> None:
    """Card and config.json of the release say how it was evaluated, and agree."""
    config, release = job.config, job.workdir.release
    privacy = load_release(release).privacy
    known = config.with_num_examples(privacy['num_examples'])
    card = model_card(
        known, privacy, made if config.release.test_set_is_public else None
    )
    write_text(release / CARD, card)
    before = read_json(release / CONFIG)
    write_text(release / CONFIG, canonical_json(before | asked(config)))
