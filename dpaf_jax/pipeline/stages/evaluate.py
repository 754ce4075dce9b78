"""What the samples teach about real test images; epsilon covers none of it.

Accuracies of synthetic images go to the run's report, and into the card where the test set
is public. What real training images give, where asked for, goes under `nonprivate/` and from
there into the report.
"""

import hashlib
import logging
from typing import Any

import numpy as np

from dpaf_jax.config import Config, EvaluationConfig, public_dict
from dpaf_jax.data import load, prepare, read_manifest
from dpaf_jax.evaluation import suite, utility
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.pipeline.figures import OWN
from dpaf_jax.pipeline.stages import samples
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.release.bundle import CARD, CONFIG, canonical_json, load_release
from dpaf_jax.release.card import model_card
from dpaf_jax.release.export import read_npz
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json, write_json, write_text
from dpaf_jax.runtime.progress import Teller
from dpaf_jax.training.workdir import Workdir

SHAPES_RESULTS = ('samples', 'evaluation', 'release')  # sections read after the release
INCEPTION = 'inception_sha256'  # of the weights of FID; no path leaves the config
SAMPLES = 'samples_sha256'  # of the data set that was judged
CEILING = 'evaluation.json'  # what real images teach, in nonprivate/


def asked(config: Config) -> dict[str, Any]:
    """The fields that decide what is measured."""
    fields = public_dict(config)
    return {name: fields[name] for name in SHAPES_RESULTS}


def is_current(workdir: Workdir, config: Config) -> bool:
    """Whether evaluation.json is of what is asked for, by all that is installed now."""
    evaluated = read_json(workdir.evaluation)
    if not evaluated or evaluated['config'] != asked(config):
        return False
    if not is_of_samples(evaluated, workdir):
        return False
    ceiling = workdir.nonprivate / CEILING
    if (
        config.evaluation.train_on_real
        and evaluated['accuracy']
        and not ceiling.exists()
    ):
        return False
    wanted = _inception(config)
    if wanted and wanted != evaluated.get(INCEPTION):
        return False
    lacked = evaluated.get('lacked', [])
    return not lacked or lacked == suite.notices(config.evaluation)


def is_of_samples(evaluated: dict[str, Any], workdir: Workdir) -> bool:
    """Whether it is of the samples that are there; of before they were noted, it may be."""
    noted = evaluated.get(SAMPLES)
    return noted is None or noted == _samples_checksum(workdir)


def _samples_checksum(workdir: Workdir) -> str:
    """SHA-256 of the synthetic data set; '' where there is none."""
    if not workdir.samples.exists():
        return ''
    with workdir.samples.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def _inception(config: Config) -> str:
    """The checksum of the Inception weights that are named; '' if none are."""
    weights = suite.inception_weights(config.evaluation)
    return weights.sha256 if weights else ''


def run(job: Job) -> dict[str, Any]:
    """Trains on synthetic, tests on real: not covered by epsilon."""
    workdir, config = job.workdir, job.config
    job.require(workdir.samples, 'samples')
    if is_current(workdir, config):
        before: dict[str, Any] = read_json(workdir.evaluation) or {}
        if before['accuracy']:
            _state_in_release(job, before['accuracy']['synthetic'])
        return before['accuracy']
    if read_manifest(job.data_directory) is None:  # deleted since the release was made
        prepare(config.data, job.data_directory)
    data = load(config.data, job.data_directory)
    test = Labelled(np.asarray(data.test_images), np.asarray(data.test_labels))
    if not len(test.labels):
        logging.warning('Not evaluated: data.test_fraction = 0 holds nothing out')
        nothing = {
            'config': asked(config),
            'accuracy': {},
            INCEPTION: _inception(config),
            SAMPLES: _samples_checksum(workdir),
        }
        write_json(workdir.evaluation, nothing)
        return {}
    made = _samples(job)
    settings = suite.alike(config.evaluation, made, test)
    measure = _Measure(job, settings, test)
    found = measure.of(made, job.teller('evaluate'))
    if not found['utility']:
        logging.warning('No accuracy: synthetic images, or test images, have one class')
    accuracy = {'synthetic': found['utility'], **_labeller(job, test)}
    if settings.train_on_real:
        train = Labelled(np.asarray(data.images), np.asarray(data.labels))
        # How many steps they take says how many there are: private where N counts empty
        # records.
        silent = job.teller('evaluate', tells=False)
        _write_ceiling(job, measure.of(train, silent), found)
    _state_in_release(job, found['utility'])
    evaluated = {
        'config': asked(config),
        'accuracy': accuracy,
        'floor': found['floor'],
        'fidelity': found['fidelity'],
        INCEPTION: _inception(config),
        SAMPLES: _samples_checksum(workdir),
        'lacked': [] if config.data.columns else suite.notices(config.evaluation),
    }
    write_json(workdir.evaluation, evaluated)
    return accuracy


def _write_ceiling(job: Job, real: dict[str, Any], synthetic: dict[str, Any]) -> None:
    """What real training images teach: not covered by epsilon, and not for the release."""
    ceiling = {
        'real': real['utility'],
        'fidelity': real['fidelity'],
        'calibrated': suite.calibrated(synthetic['utility'], real['utility']),
    }
    write_json(job.workdir.make_nonprivate() / CEILING, ceiling)


def _labeller(job: Job, test: Labelled) -> dict[str, Any]:
    """How often the release's own labeller is right; nothing where it has none."""
    release = load_release(job.workdir.release)
    if not release.has_labeller:
        return {}
    right = float(np.mean(release.label(test.images) == test.labels))
    return {OWN: {'labeller': {'mean': right, 'std': 0.0, 'values': [right]}}}


def _samples(job: Job) -> Labelled:
    """The synthetic data set; UserError where it is of another size than asked for."""
    made, wanted = Labelled(*read_npz(job.workdir.samples)), samples.wanted(job)
    if len(made.labels) != wanted:
        raise UserError(
            'config.samples.num',
            f'asks for {wanted}, and {job.workdir.samples} has {len(made.labels)}',
            'Run --stage=samples first, or give its number',
        )
    return made


class _Measure:
    """Utility of images or rows, its floor, and fidelity of images."""

    def __init__(self, job: Job, settings: EvaluationConfig, test: Labelled):
        self._settings, self._test = settings, test
        self._num_classes = job.config.data.num_classes
        self._is_of_rows = bool(job.config.data.columns)
        if not self._is_of_rows:
            for line in suite.notices(settings):
                logging.warning(line)
            self._suite = suite.Suite(test, self._num_classes, settings)

    def of(self, source: Labelled, teller: Teller) -> dict[str, Any]:
        """What `source` teaches about the test split."""
        if not self._is_of_rows:
            found = self._suite.evaluate(source, teller)
            return found | {'floor': utility.floor(self._test.labels)}
        from dpaf_jax.evaluation import tables  # late: scikit-learn is slow

        total = tables.total_models(self._settings)
        with teller.progress('classifiers', total, 0, 'model') as on_progress:
            made = tables.evaluate(
                source, self._test, self._num_classes, self._settings, on_progress
            )
        return {'utility': made, 'fidelity': {}, 'floor': tables.FLOOR}


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
