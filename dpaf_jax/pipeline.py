"""The main job, stage by stage: the same from the command line and from a notebook.

    release, report = dpaf_jax.synthesize(config, 'runs/digits')

Stages: prepare -> plan -> train -> release -> samples -> evaluate -> report. Each leaves
its result in the workdir; one that is done is not done again.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from ml_collections import ConfigDict

from dpaf_jax import evaluate, fingerprint, methods, parallel, pictures, report
from dpaf_jax.config import Config, from_config_dict, public_dict
from dpaf_jax.data import Dataset, Manifest, load, prepare, read_manifest
from dpaf_jax.errors import UserError
from dpaf_jax.export import write_npz
from dpaf_jax.model_card import model_card
from dpaf_jax.privacy.keys import RunKeys, read_or_create_entropy
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.progress import History, Progress
from dpaf_jax.release import CARD, Release, load_release, write_release
from dpaf_jax.run import Run, StopRequest
from dpaf_jax.workdir import Workdir, read_json, write_json

STAGES = ('prepare', 'plan', 'train', 'release', 'samples', 'evaluate', 'report')
FIXED_ENTROPY = 'none (fixed entropy)'


class Result(NamedTuple):
    """What a whole run returns."""

    release: Release
    report: dict[str, Any]


def synthesize(
    config: ConfigDict, workdir: str | os.PathLike[str], *, entropy: bytes | None = None
) -> Result:
    """Runs every stage that is not done yet.

    Args:
        config: with the fields of `configs/default.py`.
        workdir: folder of the run; created, resumed, or found finished.
        entropy: for tests: makes the run repeatable and its guarantee 'none'.

    Returns:
        The release and the content of report.json.

    Raises:
        UserError: for anything that the caller can mend.
    """
    pipeline = Pipeline(config, workdir, entropy=entropy)
    for stage in STAGES:
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
    """

    def __init__(
        self,
        config: ConfigDict,
        workdir: str | os.PathLike[str],
        *,
        entropy: bytes | None = None,
        stop: StopRequest | None = None,
    ):
        self.config: Config = from_config_dict(config)
        self.method = methods.get(self.config.method)
        self.workdir = Workdir(workdir)
        self._entropy = entropy
        self._stop = stop or StopRequest()

    def run(self, stage: str) -> Any:
        """Runs one stage by name, holding the workdir's lock; returns its result.

        Raises:
            UserError: the stage is unknown, or one before it has not been run.
        """
        if stage not in STAGES:
            raise UserError(
                '--stage', f'is {stage!r}', f'Choose all or {", ".join(STAGES)}'
            )
        self._stop.check(stage)
        with self.workdir.locked():
            self._refuse_other_config()
            with self.workdir.timed(stage):
                return getattr(self, f'_{stage}')()

    def _refuse_other_config(self) -> None:
        """A workdir belongs to the config that it was planned with."""
        now, before = (
            fingerprint.trained_with(self.config),
            read_json(self.workdir.config),
        )
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
        return self.workdir.report.exists() and not self.workdir.entropy.exists()

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
        return prepare(self.config.data, self._data_directory)

    def _plan(self) -> PrivacyPlan:
        """Plans from public numbers alone: no image, no accelerator."""
        fields = fingerprint.trained_with(self.config)
        fixed = self._entropy is not None
        if self.workdir.plan.exists() and read_json(self.workdir.config) == fields:
            plan = PrivacyPlan.from_json(read_json(self.workdir.plan))
            if fixed == (plan.guarantee == FIXED_ENTROPY):
                return plan
        plan = self.method.plan(self.config, self._num_examples())
        if fixed:
            plan = dataclasses.replace(plan, guarantee=FIXED_ENTROPY)
        self.workdir.plan.unlink(missing_ok=True)
        write_json(self.workdir.config, fields)
        write_json(self.workdir.plan, plan.to_json())
        return plan

    def _num_examples(self) -> int:
        if self.config.data.num_examples:
            return self.config.data.num_examples
        manifest = read_manifest(self._data_directory)
        if manifest is None:
            raise UserError(
                'config.data.num_examples',
                'is 0 and no data have been prepared in this workdir',
                'Give the public number of training images, or run --stage=prepare first',
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
        data = load(self.config.data, self._data_directory)
        if len(data.labels) != plan.num_examples:
            raise UserError(
                str(self.workdir.plan),
                f'was made for {plan.num_examples} images, but the data have '
                f'{len(data.labels)}',
                'Give a new workdir and the right config.data.num_examples',
            )
        return data

    def _train(self) -> Any:
        """Trains, or finds it done; returns the generator's parameters."""
        self._require(self.workdir.plan, 'plan')
        if self.workdir.release.exists():
            logging.info('%s: released already, nothing to train', self.workdir.root)
            return load_release(self.workdir.release).params
        plan = self._plan()
        self._require(self._data_directory / 'manifest.json', 'prepare')
        data = self._data(plan)
        devices = parallel.pick_devices(self.config.run.devices)
        run = Run(
            workdir=self.workdir.root,
            config=self.config,
            plan=plan,
            data=data,
            keys=self._keys(data.manifest, devices),
            devices=devices,
            stop=self._stop,
        )
        return self.method.train(run)

    def _keys(self, manifest: Manifest, devices: list[Any]) -> RunKeys:
        before = read_json(self.workdir.fingerprint)
        if before and self._entropy is None:
            self._refuse_lost_entropy()
        entropy = self._entropy or read_or_create_entropy(self.workdir.entropy)
        parts = fingerprint.components(self.config, manifest, devices, entropy)
        if before and (changed := fingerprint.changes(before, parts)):
            raise UserError(
                '--workdir',
                f'{self.workdir.root} was started under other circumstances: {changed}',
                'Restore them to resume, or give a new workdir: it takes new keys and '
                'spends epsilon anew',
            )
        if not before:
            write_json(self.workdir.fingerprint, parts)
            os.chmod(self.workdir.fingerprint, 0o600)
        return RunKeys(entropy, fingerprint.digest(parts))

    def _refuse_lost_entropy(self) -> None:
        # With new keys, steps since the last save would be released twice, paid once.
        if not self.workdir.entropy.exists():
            raise UserError(
                str(self.workdir.entropy),
                'is missing, although training has begun here',
                'Restore it to resume, or give a new workdir: it spends epsilon anew',
            )

    def _release(self) -> Release:
        """Writes the release folder from the finished training, then deletes the keys."""
        if not self.workdir.release.exists():
            params = self._train()
            write_release(self.workdir.release, self.config, self._plan(), params)
        self.workdir.entropy.unlink(missing_ok=True)
        return load_release(self.workdir.release)

    def _samples(self) -> pathlib.Path:
        """Draws the synthetic data set from the release."""
        self._require(self.workdir.release, 'release')
        if not self.workdir.samples.exists():
            images, labels = load_release(self.workdir.release).sample(
                self.config.samples.num
            )
            write_npz(self.workdir.samples, images, labels)
        return self.workdir.samples

    def _evaluate(self) -> dict[str, Any]:
        """Trains on synthetic, tests on real: not covered by epsilon."""
        self._require(self.workdir.samples, 'samples')
        asked = public_dict(self.config)['evaluation']
        before = read_json(self.workdir.evaluation)
        if before and before['config'] == asked:
            return before['accuracy']
        data = load(self.config.data, self._data_directory)
        with np.load(self.workdir.samples) as synthetic:
            train = synthetic['images'], synthetic['labels']
        test = np.asarray(data.test_images), np.asarray(data.test_labels)
        k, settings = self.config.data.num_classes, self.config.evaluation
        progress = Progress(
            'evaluate',
            evaluate.total_steps(len(train[1]), settings),
            settings.batch_size,
        )

        def on_progress(step: int, metrics: Mapping[str, Any]) -> None:
            self._stop.check('evaluate')
            progress.update(step, metrics)

        made = evaluate.evaluate(*train, *test, k, settings, on_progress=on_progress)
        progress.close()
        accuracy = {'synthetic': made}
        if settings.train_on_real:
            real = np.asarray(data.images), np.asarray(data.labels)
            ceiling = evaluate.evaluate(*real, *test, k, settings)
            write_json(self.workdir.nonprivate / 'evaluation.json', {'real': ceiling})
        write_json(self.workdir.evaluation, {'config': asked, 'accuracy': accuracy})
        if self.config.release.test_set_is_public:
            card = model_card(
                self.config, self._plan().to_json(), accuracy['synthetic']
            )
            (self.workdir.release / CARD).write_text(card, encoding='utf-8')
        return accuracy

    def _report(self) -> dict[str, Any]:
        """The run's own report; it never enters the release."""
        self._require(self.workdir.release, 'release')
        grid = None
        if self.workdir.samples.exists():
            with np.load(self.workdir.samples) as synthetic:
                images, labels = synthetic['images'], synthetic['labels']
            grid = pictures.sample_grid(images, labels, self.config.data.num_classes)
        return report.write_report(
            self.workdir.root,
            config=public_dict(self.config),
            privacy=self._plan().to_json(),
            accuracy=(read_json(self.workdir.evaluation) or {'accuracy': {}})[
                'accuracy'
            ],
            history=History(self.workdir.root).rows(),
            wall_seconds=self.workdir.wall_seconds(),
            sample_grid=grid,
            environment=report.environment(),
        )
