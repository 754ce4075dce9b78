"""The main job, stage by stage: the same from the command line and from a notebook.

    release, report = dpaf_jax.synthesize(config, 'runs/digits')

Stages: prepare -> plan -> train -> release -> samples -> evaluate -> report. Each leaves
its result in the workdir; one that is done is not done again.
"""

import dataclasses
import hashlib
import logging
import math
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging as absl_logging
from ml_collections import ConfigDict

from dpaf_jax import methods
from dpaf_jax.config import Config, DataConfig, from_config_dict, public_dict
from dpaf_jax.data import (
    Dataset,
    Manifest,
    check_arrays,
    load,
    prepare,
    read_manifest,
)
from dpaf_jax.evaluation import suite, utility
from dpaf_jax.pipeline import checks, decide, report
from dpaf_jax.pipeline.figures import figure
from dpaf_jax.privacy.plan import FIXED_ENTROPY, PrivacyPlan
from dpaf_jax.release import pictures
from dpaf_jax.release.bundle import (
    CARD,
    CONFIG,
    Release,
    canonical_json,
    load_release,
    write_release,
)
from dpaf_jax.release.card import model_card
from dpaf_jax.release.export import read_npz, write_csv, write_npz
from dpaf_jax.runtime import compilation_cache, parallel, processes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import (
    json_text,
    read_json,
    require_space,
    write_json,
    write_text,
)
from dpaf_jax.training import fingerprint, resume
from dpaf_jax.training.history import History
from dpaf_jax.training.progress import Progress
from dpaf_jax.training.run import Run
from dpaf_jax.training.signals import StopRequest
from dpaf_jax.training.workdir import Workdir

STAGES = ('prepare', 'plan', 'train', 'release', 'samples', 'evaluate', 'report')
SHARED = ('train', 'release')  # by all processes; the others are the first one's
SHAPES_RESULTS = ('samples', 'evaluation', 'release')  # sections read after the release
Arrays = tuple[np.ndarray, np.ndarray]  # images or rows, and labels
SLOW_TO_READ = 10**9  # bytes, a second or more


class Result(NamedTuple):
    """What a whole run returns.

    Attributes:
        release: loaded from the run's folder.
        report: the content of report.json; not covered by epsilon.
    """

    release: Release
    report: dict[str, Any]

    def __repr__(self) -> str:
        accuracy = self.report['accuracy'].get('synthetic', {})
        told = ''.join(f', {name} {figure(found)}' for name, found in accuracy.items())
        return f'<Result: {self.release}{told}>'


def synthesize(
    config: ConfigDict, workdir: str | os.PathLike[str], *, entropy: bytes | None = None
) -> Result:
    """Runs every stage that is not done yet.

    Guarantee: the release, the synthetic images and the plan are (epsilon, delta)-DP as
    `release.privacy` states, if it says 'certified'. The report is not covered: it has
    accuracies on real test images.

    Args:
        config: with the fields of `dpaf_jax.config.defaults`.
        workdir: folder of the run; created, resumed, or found finished.
        entropy: for tests: makes the run repeatable and its guarantee 'none'.

    Returns:
        The release and the content of report.json.

    Raises:
        UserError: for anything that the caller can mend.
        Interrupted: after SIGTERM or SIGINT, saved, where signals are listened to.

    Example:
        >>> import dpaf_jax
        >>> from configs import recommended
        >>> config = recommended.get_config('digits')
        >>> release, report = dpaf_jax.synthesize(config, 'runs/digits')  # doctest: +SKIP
        >>> images, labels = release.sample(100)  # doctest: +SKIP
    """
    pipeline = Pipeline(config, workdir, entropy=entropy)
    for stage in pipeline.stages():
        pipeline.run(stage)
    return Result(
        load_release(pipeline.workdir.release), read_json(pipeline.workdir.report)
    )


class Pipeline:
    """The stages of one run.

    Args:
        config: as for `synthesize`; checked here.
        workdir: as for `synthesize`.
        entropy: as for `synthesize`.
        stop: asked between windows and stages; None makes one that listens to no signal.

    Raises:
        UserError: a field of the config is unknown, missing, or out of range.
    """

    def __init__(
        self,
        config: ConfigDict,
        workdir: str | os.PathLike[str],
        *,
        entropy: bytes | None = None,
        stop: StopRequest | None = None,
    ):
        self.workdir = Workdir(workdir)
        self.config: Config = self._decided(from_config_dict(config, is_open=True))
        self.method = methods.get(self.config.method)
        self._entropy = entropy
        self._stop = stop or StopRequest()
        self._checked: dict[pathlib.Path, Dataset] = {}

    def _decided(self, config: Config) -> Config:
        """The config without open fields: what this workdir was begun with, or a look."""
        if not decide.undecided(config):
            return decide.filled(config, {})
        return decide.filled(config, processes.from_first(lambda: self._look(config)))

    def _look(self, config: Config) -> dict[str, Any]:
        if before := read_json(self.workdir.config):
            kept: dict[str, Any] = before['config']
            return kept
        decided, seen, told = decide.look(config)
        if sys.stdout.isatty():
            print(seen)
        else:  # a log is not for the owner's eyes alone
            decide.filled(config, decided)  # or nothing is written
            print(f'What was seen is private: {self.workdir.keep_survey(seen)}')
        print(told, flush=True)
        return decided

    def __repr__(self) -> str:
        return f'<Pipeline of {self.config.method} in {self.workdir.root}>'

    def stages(self) -> tuple[str, ...]:
        """All stages in order.

        With a public N the plan comes first: settings that cannot be met stop the run
        before it has decoded an image.
        """
        prepare, plan, *rest = STAGES
        first = (plan, prepare) if self.config.data.num_examples else (prepare, plan)
        return (*first, *rest)

    def run(self, stage: str) -> Any:
        """Runs one stage by name, holding the workdir's lock; returns its result.

        With several processes all call this; only the first has a result of a stage that
        is not shared. They part when the last shared stage is done.

        Args:
            stage: 'prepare', 'plan', 'train', 'release', 'samples', 'evaluate' or 'report'.

        Returns:
            The manifest, the `PrivacyPlan`, the generator's parameters, the `Release`, the
            path of the samples, the accuracies, or the report.

        Raises:
            UserError: the stage is unknown, or one before it has not been run.
        """
        if stage not in STAGES:
            raise UserError(
                '--stage', f'is {stage!r}', f'Choose all or {", ".join(STAGES)}'
            )
        self._stop.check(stage)
        begins = STAGES.index(stage) <= STAGES.index('train')
        if begins and not self.workdir.release.exists():
            methods.check_installed(self.config)
        if STAGES.index(stage) > STAGES.index(SHARED[-1]):
            processes.leave()
        if processes.is_first():
            with self.workdir.locked():
                self._refuse_other_config()
                with self.workdir.timed(stage):
                    return getattr(self, f'_{stage}')()
        return getattr(self, f'_{stage}')() if stage in SHARED else None

    def _refuse_other_config(self) -> None:
        """A workdir belongs to the config that it was trained with."""
        now = fingerprint.trained_with(self.config)
        before = (read_json(self.workdir.config) or {}).get('config')
        if before is None:
            return
        started = self.workdir.fingerprint.exists() or self.workdir.release.exists()
        if (changed := fingerprint.changes(before, now)) and started:
            raise UserError(
                '--workdir',
                f'{self.workdir.root} belongs to a run with another config: {changed}',
                'Give a new workdir, or the old config',
            )

    def is_done(self) -> bool:
        """Whether a whole run has been finished here with this config."""
        self._refuse_other_config()
        evaluated = read_json(self.workdir.evaluation) or {}
        return (
            self.workdir.report.exists()
            and not self.workdir.entropy.exists()
            and evaluated.get('config') == self._asked_of_results()
        )

    def _asked_of_results(self) -> dict[str, Any]:
        fields = public_dict(self.config)
        return {name: fields[name] for name in SHAPES_RESULTS}

    # --- stages -----------------------------------------------------------------

    @property
    def _data_directory(self) -> pathlib.Path:
        cache = self.config.data.cache
        return pathlib.Path(cache) if cache else self.workdir.private / 'data'

    def _prepare(self) -> Manifest | None:
        """Decodes the images, unless they are there or the release is made already."""
        if (
            self.workdir.release.exists()
            and read_manifest(self._data_directory) is None
        ):
            return None
        if public := self.config.public_data:
            self._prepare_public(public)
        return prepare(self.config.data, self._data_directory)

    def _prepare_public(self, public: DataConfig) -> None:
        try:
            prepare(public, self.workdir.public, labelled=public.num_classes > 1)
        except UserError as error:
            field = f'config.{self.config.method}.warm_start'
            own = {
                'config.data.source': field,
                'config.data.num_classes': f'{field}_classes',
            }
            where = own.get(error.where, error.where)
            raise UserError(where, error.problem, error.remedy) from error

    def _plan(self) -> PrivacyPlan:
        """Plans from public numbers alone: no image, no accelerator."""
        if self.workdir.release.exists():
            return PrivacyPlan.from_json(load_release(self.workdir.release).privacy)
        fields = fingerprint.trained_with(self.config)
        fixed = self._entropy is not None
        plan = self._plan_of(fields)
        if plan and fixed == (plan.guarantee == FIXED_ENTROPY):
            return plan
        plan = methods.plan(self.config, self._num_examples())
        if fixed:
            plan = dataclasses.replace(plan, guarantee=FIXED_ENTROPY)
        self.workdir.plan.unlink(missing_ok=True)
        checksum = _checksum(json_text(plan.to_json()).encode())
        write_json(self.workdir.config, {'config': fields, 'plan': checksum})
        write_json(self.workdir.plan, plan.to_json())
        return plan

    def _plan_of(self, fields: dict[str, Any]) -> PrivacyPlan | None:
        """The plan that was made here for this config, if there is one."""
        made = read_json(self.workdir.config) or {}
        if not self.workdir.plan.exists() or made.get('config') != fields:
            return None
        if _checksum(self.workdir.plan.read_bytes()) != made['plan']:
            raise UserError(
                str(self.workdir.plan),
                'is not as it was written',
                'Delete it and run the plan stage: it makes the same plan again',
            )
        return PrivacyPlan.from_json(read_json(self.workdir.plan))

    def _num_examples(self) -> int:
        if self.config.data.num_examples:
            return self.config.data.num_examples
        manifest = read_manifest(self._data_directory)
        if manifest is None:
            raise UserError(
                'config.data.num_examples',
                'is 0 and no data have been prepared in this workdir',
                'Give the number of your images, or a larger public one, or run '
                '--stage=prepare first',
            )
        return manifest.num_examples

    def _require(self, path: pathlib.Path, stage: str) -> None:
        if not path.exists():
            raise UserError(
                '--stage',
                f'needs {path}, which is not there',
                f'Run --stage={stage} first',
            )

    def _data(self, plan: PrivacyPlan) -> Dataset:
        data = self._load_checked(self.config.data, self._data_directory)
        if data.manifest.num_examples != plan.num_examples:
            raise UserError(
                str(self.workdir.plan),
                f'was made for {plan.num_examples} images, but the data have '
                f'{data.manifest.num_examples}',
                'Give a new workdir and the right config.data.num_examples',
            )
        return data

    def _load_checked(self, config: DataConfig, directory: pathlib.Path) -> Dataset:
        """The data that keys are taken for, each array read once and compared."""
        if directory not in self._checked:
            data = load(config, directory)
            if data.images.nbytes > SLOW_TO_READ and processes.is_first():
                size = data.images.nbytes / 1e9
                print(f'checking {size:.1f} GB of prepared data', flush=True)
            check_arrays(data, directory)
            self._checked[directory] = data
        return self._checked[directory]

    def _public(self, private: Dataset) -> Dataset | None:
        if self.config.public_data is None:
            return None
        public = self._load_checked(self.config.public_data, self.workdir.public)
        if np.array_equal(public.images, private.images):
            raise UserError(
                f'config.{self.config.method}.warm_start',
                'names the private images, at another place',
                'Name a source of public images, or none',
            )
        return public

    def _train(self) -> Any:
        """Trains, or finds it done; returns the generator's parameters."""
        planned = processes.from_first(self._planned)
        if planned is None:
            logging.info('%s: released already, nothing to train', self.workdir.root)
            return load_release(self.workdir.release).params
        plan = PrivacyPlan.from_json(planned)
        data = self._data(plan)
        devices = parallel.pick_devices(self.config.run.devices)
        public = self._public(data)

        def components(entropy: bytes) -> dict[str, Any]:
            also = public.manifest if public else None
            return fingerprint.components(
                self.config, plan, data.manifest, devices, entropy, also
            )

        absl_logging.log_first_n(
            absl_logging.INFO, '%s', 1, compilation_cache.described()
        )
        keys, inherited = resume.take_keys(self.workdir, self._entropy, components)
        run = Run(
            workdir=self.workdir.root,
            config=self.config,
            plan=plan,
            data=data.placed(keys.lasting('places')),
            keys=keys,
            devices=devices,
            stop=self._stop,
            inherited=inherited,
            public=public,
        )
        return methods.train(run)

    def _planned(self) -> dict[str, Any] | None:
        """The plan of a training that is still to be done; every process has it from here."""
        self._require(self.workdir.plan, 'plan')
        if self.workdir.release.exists():
            return None
        plan = self._plan()
        self._require(self._data_directory / 'manifest.json', 'prepare')
        return plan.to_json()

    def _release(self) -> Release:
        """Writes the release folder from the finished training, then deletes the keys."""
        if not processes.from_first(self.workdir.release.exists):
            params = self._train()
            processes.from_first(lambda: self._write_release(params))
        self.workdir.entropy.unlink(missing_ok=True)
        return load_release(self.workdir.release)

    def _write_release(self, params: Any) -> None:
        write_release(self.workdir.release, self.config, self._plan(), params)

    def _samples(self) -> pathlib.Path:
        """Draws the synthetic data set from the release."""
        self._require(self.workdir.release, 'release')
        number = self.config.samples.number(self._plan().num_examples)
        if self._num_samples() != number:
            require_space(self.workdir.root, number * self._record_bytes)
            images, labels = load_release(self.workdir.release).sample(number)
            if self.config.data.columns:
                write_csv(self.workdir.samples_csv, self.config.data, images, labels)
            write_npz(self.workdir.samples, images, labels)
        return self.workdir.samples

    @property
    def _record_bytes(self) -> int:
        data = self.config.data
        return math.prod(data.shape) * (4 if data.columns else 1)

    def _num_samples(self) -> int:
        if not self.workdir.samples.exists():
            return 0
        return len(read_npz(self.workdir.samples)[1])

    def _evaluate(self) -> dict[str, Any]:
        """Trains on synthetic, tests on real: not covered by epsilon."""
        self._require(self.workdir.samples, 'samples')
        asked = self._asked_of_results()
        before = read_json(self.workdir.evaluation)
        if before and before['config'] == asked:
            return before['accuracy']
        data = load(self.config.data, self._data_directory)
        test = np.asarray(data.test_images), np.asarray(data.test_labels)
        if not len(test[1]):
            logging.warning('Not evaluated: data.test_fraction = 0 holds nothing out')
            write_json(self.workdir.evaluation, {'config': asked, 'accuracy': {}})
            return {}
        found = self._measured(read_npz(self.workdir.samples), test)
        accuracy = {'synthetic': found['utility']}
        if self.config.evaluation.train_on_real:
            train = np.asarray(data.images), np.asarray(data.labels)
            real = self._measured(train, test)
            ceiling = {
                'real': real['utility'],
                'fidelity': real['fidelity'],
                'calibrated': suite.calibrated(found['utility'], real['utility']),
            }
            write_json(self.workdir.nonprivate / 'evaluation.json', ceiling)
        self._state_figures(found['utility'], asked)
        evaluated = {
            'config': asked,
            'accuracy': accuracy,
            'floor': self._protocol.floor(test[1]),
            'fidelity': found['fidelity'],
        }
        write_json(self.workdir.evaluation, evaluated)
        return accuracy

    @property
    def _protocol(self) -> Any:
        if not self.config.data.columns:
            return utility
        from dpaf_jax.evaluation import tables  # late: scikit-learn is slow

        return tables

    def _measured(self, source: Arrays, test: Arrays) -> dict[str, Any]:
        """Utility of images or rows, and fidelity of images; with progress on the way."""
        k, settings = self.config.data.num_classes, self.config.evaluation
        steps = self._protocol.total_steps(len(source[1]), settings)
        progress = Progress('evaluate', steps, settings.batch_size)

        def on_progress(step: int, metrics: Mapping[str, Any]) -> None:
            self._stop.check('evaluate')
            progress.update(step, metrics)

        if self.config.data.columns:
            made = self._protocol.evaluate(
                *source, *test, k, settings, on_progress=on_progress
            )
            found: dict[str, Any] = {'utility': made, 'fidelity': {}}
        else:
            for line in suite.notices(settings):
                logging.warning(line)
            found = suite.evaluate(
                suite.Labelled(*source),
                suite.Labelled(*test),
                k,
                settings,
                lambda line: logging.info('evaluate: %s', line),
                on_progress,
            )
        progress.close()
        return found

    def _ceiling(self, evaluated: dict[str, Any]) -> dict[str, Any]:
        """What real images teach, where the evaluation that is reported asked for it."""
        asked = evaluated.get('config', {}).get('evaluation', {})
        if not asked.get('train_on_real'):
            return {}
        found = read_json(self.workdir.nonprivate / 'evaluation.json') or {}
        ceiling: dict[str, Any] = found.get('real', {})
        return ceiling

    def _state_figures(self, made: dict[str, Any], asked: dict[str, Any]) -> None:
        """Card and config.json of the release say how it was evaluated, and agree."""
        public = self.config.release.test_set_is_public
        privacy = load_release(self.workdir.release).privacy
        card = model_card(self.config, privacy, made if public else None)
        write_text(self.workdir.release / CARD, card)
        path = self.workdir.release / CONFIG
        write_text(path, canonical_json(read_json(path) | asked))

    def _report(self) -> dict[str, Any]:
        """The run's own report; it never enters the release."""
        self._require(self.workdir.release, 'release')
        privacy, grid = load_release(self.workdir.release).privacy, None
        if self.workdir.samples.exists():
            images, labels = read_npz(self.workdir.samples)
            grid = pictures.sample_grid(images, labels, self.config.data.num_classes)
        evaluated = read_json(self.workdir.evaluation) or {}
        return report.write_report(
            self.workdir.root,
            config=public_dict(self.config),
            privacy=privacy,
            accuracy=evaluated.get('accuracy', {}),
            fidelity=evaluated.get('fidelity', {}),
            floor=evaluated.get('floor'),
            ceiling=self._ceiling(evaluated),
            checked=checks.outcomes(self.workdir, privacy),
            history=History(self.workdir.root).rows(),
            wall_seconds=self.workdir.wall_seconds(),
            sample_grid=grid,
            environment=report.environment(),
        )


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
