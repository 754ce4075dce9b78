"""The main job, stage by stage: the same from the command line and from a notebook.

    release, report = dpaf_jax.synthesize(config, 'runs/digits')

Stages: prepare -> plan -> train -> release -> samples -> evaluate -> report. Each leaves
its result in the workdir; one that is done is not done again.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from dpaf_jax import methods
from dpaf_jax.config import Config, check_is_read, from_config_dict
from dpaf_jax.evaluation import suite
from dpaf_jax.pipeline import decide
from dpaf_jax.pipeline.figures import figure
from dpaf_jax.pipeline.stages import (
    evaluate,
    plan,
    prepare,
    release,
    report,
    samples,
    train,
)
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.release.bundle import has_all_files, load_release
from dpaf_jax.release.drawing import Release
from dpaf_jax.runtime import parallel, processes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json
from dpaf_jax.training import fingerprint
from dpaf_jax.training.signals import StopRequest
from dpaf_jax.training.workdir import Workdir

STAGE_FNS: dict[str, Callable[[Job], Any]] = {
    'prepare': prepare.run,
    'plan': plan.run,
    'train': train.run,
    'release': release.run,
    'samples': samples.run,
    'evaluate': evaluate.run,
    'report': report.run,
}
STAGES = tuple(STAGE_FNS)
SHARED = ('train', 'release')  # by all processes; the others are the first one's


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


def check_stage(stage: str) -> None:
    """Refuses an unknown stage; UserError."""
    if stage not in STAGES:
        remedy = f'Choose all or {", ".join(STAGES)}'
        raise UserError('--stage', f'is {stage!r}', remedy)


class Pipeline:
    """The stages of one run.

    Args:
        config: as for `synthesize`; checked here.
        workdir: as for `synthesize`.
        entropy: as for `synthesize`.
        stop: asked between windows and stages; None makes one that hears Ctrl-C alone.
        stated: fields that somebody has set by name; the method must read them.

    Raises:
        UserError: a field of the config is unknown, missing, out of range, or of another
            method.
    """

    def __init__(
        self,
        config: ConfigDict,
        workdir: str | os.PathLike[str],
        *,
        entropy: bytes | None = None,
        stop: StopRequest | None = None,
        stated: Iterable[str] = (),
    ):
        if not os.fspath(workdir):  # would be the current folder
            raise UserError('--workdir', 'is empty', 'Give the folder of the run')
        self.workdir = Workdir(workdir)
        typed = from_config_dict(config, is_open=True)
        methods.get(typed.method)  # refuses an unknown one before data are looked at
        check_is_read(typed.method, stated)
        self.config: Config = decide.decided(typed, self.workdir)
        self._stop = stop
        self._job = Job(self.config, self.workdir, entropy, stop or StopRequest())

    def __repr__(self) -> str:
        return f'<Pipeline of {self.config.method} in {self.workdir.root}>'

    def stages(self) -> tuple[str, ...]:
        """Those of a whole run, in order.

        With a public N the plan comes first: settings that cannot be met stop the run
        before it has decoded an image. A run that has its release needs no images to
        train on.
        """
        if not self.config.data.num_examples:
            stages = STAGES
        else:
            stages = ('plan', 'prepare', *STAGES[2:])
        needed = not self.workdir.release.exists()
        return tuple(stage for stage in stages if needed or stage != 'prepare')

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
            KeyboardInterrupt: after Ctrl-C, with everything saved.
        """
        if self._stop is not None:
            return self._run(stage)
        self._job.stop.signal_number = 0  # of a call before
        with self._job.stop.hearing_ctrl_c():
            return self._run(stage)

    def _check_evaluation(self) -> None:
        """Refuses what the last stages would refuse, before epsilon is spent."""
        suite.inception_weights(self.config.evaluation)
        if not self.config.data.columns:
            suite.check_side(self.config.evaluation, self.config.data.image_size)

    def _run(self, stage: str) -> Any:
        check_stage(stage)
        self._job.stop.check(stage)
        begins = STAGES.index(stage) <= STAGES.index('train')
        if begins and not self.workdir.release.exists():
            methods.check_installed(self.config)
            self._check_evaluation()
            fingerprint.require_code()
            if stage != 'plan':  # which needs none
                parallel.pick_devices(self.config.run.devices)
        if STAGES.index(stage) > STAGES.index(SHARED[-1]):
            processes.leave()
        if processes.is_first():
            with self.workdir.locked():
                self._refuse_other_config()
                with self.workdir.timed(stage):
                    return STAGE_FNS[stage](self._job)
        return STAGE_FNS[stage](self._job) if stage in SHARED else None

    def _refuse_other_config(self) -> None:
        """A workdir belongs to the config that it was trained with."""
        now = fingerprint.trained_with(self.config)
        before = (read_json(self.workdir.config) or {}).get('config')
        if before is None:
            said = fingerprint.started_with(
                self.workdir.fingerprint, self.workdir.release
            )
            before = {name: value for name, value in said.items() if name in now}
            now = {name: now[name] for name in before}
        started = self.workdir.fingerprint.exists() or self.workdir.release.exists()
        if (changed := fingerprint.changes(before, now)) and started:
            raise UserError(
                '--workdir',
                f'{self.workdir.root} belongs to a run with another config: {changed}',
                'Give the old config; or a new workdir, which spends epsilon anew: of both '
                'together the sum is promised',
            )

    def is_done(self) -> bool:
        """Whether a whole run has been finished here with this config."""
        self._refuse_other_config()
        workdir, asked = self.workdir, evaluate.asked(self.config)
        if (
            workdir.entropy.exists()
            or not evaluate.is_current(workdir, self.config)
            or not has_all_files(workdir.release)
            or not workdir.samples.exists()
            or not (workdir.root / 'report.html').exists()
        ):
            return False
        told = (read_json(self.workdir.report) or {}).get('config', {})
        return asked == {name: told.get(name) for name in asked}
