"""The folder of a run: where everything is, who may use it, and what is done already.

plan.json             the privacy plan (public)
release/              what may be handed out
samples/              the synthetic data set
report.html, .json    the run's report, with figures on real test images
verification.json     the outcome of `verify`; audit/ that of `audit --out=.../audit`
history.jsonl, tensorboard/, checkpoints/, evaluation.json, stages.json
private/              entropy, fingerprint, decoded images, survey.txt (mode 0700)
nonprivate/           what no epsilon covers, only where asked for (mode 0700)
"""

import contextlib
import fcntl
import os
import pathlib
import stat
import time
from collections.abc import Iterator

from dpaf_jax.runtime.errors import InUseError, UserError
from dpaf_jax.runtime.files import read_json, require_space, write_json, write_text

NOT_PRIVATE = '_NOT_PRIVATE'  # what attacks end the names of their files with
MIN_FREE_BYTES = 200 * 2**20


class Workdir:
    """Paths and small files of one run."""

    def __init__(self, root: str | os.PathLike[str]):
        if '://' in os.fspath(root):  # else a folder of that name is made here
            problem, remedy = f'is {root}, no folder', 'Give a mounted one'
            raise UserError('--workdir', problem, remedy)
        self.root = pathlib.Path(root).expanduser()  # no shell expands --workdir=~/x
        self.plan = self.root / 'plan.json'
        self.config = self.root / 'private' / 'config.json'
        self.release = self.root / 'release'
        self.samples = self.root / 'samples' / 'synthetic.npz'
        self.samples_csv = self.samples.with_suffix('.csv')
        self.evaluation = self.root / 'evaluation.json'
        self.nonprivate = self.root / 'nonprivate'
        self.attacks = self.nonprivate / 'attacks'
        self.verification = self.root / 'verification.json'
        self.audit = self.root / 'audit' / 'audit.json'
        self.report = self.root / 'report.json'
        self.private = self.root / 'private'
        self.public = self.private / 'public'  # images; private is what else is here
        self.entropy = self.private / 'entropy'
        self.fingerprint = self.private / 'fingerprint.json'
        self.inherited = self.private / 'inherited.json'
        self.placement = self.private / 'placement.json'
        self.stopped = self.root / 'checkpoints' / 'stopped.json'
        self.running = self.root / 'checkpoints' / 'running.json'
        self.stages = self.root / 'stages.json'

    def decoded(self, cache: str) -> pathlib.Path:
        """Where private images lie decoded: here, unless the config names a place."""
        return pathlib.Path(cache).expanduser() if cache else self.private / 'data'

    def make_nonprivate(self) -> pathlib.Path:
        """The folder of what no epsilon covers, closed to other users."""
        self.nonprivate.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.nonprivate.chmod(0o700)
        return self.nonprivate

    def attack_file(self, name: str) -> pathlib.Path:
        """What an attack of this name found."""
        return self.attacks / f'{name}{NOT_PRIVATE}.json'

    def keep_survey(self, text: str) -> pathlib.Path:
        """Writes what a look at the data saw; returns where, a private place.

        Raises:
            UserError: the folder cannot be written.
        """
        path = self.private / 'survey.txt'
        with self._writing():
            write_text(path, text + '\n')
        return path

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self.private.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._shut()
            yield
        except NotADirectoryError as error:
            problem = f'{self.root} is a file, or below one'
            raise UserError('--workdir', problem, 'Give a folder') from error
        except OSError as error:
            raise UserError(
                '--workdir',
                f'{self.root} cannot be written ({error.strerror}: {error.filename})',
                'Give another',
            ) from error

    def _shut(self) -> None:
        """Private is also a folder that was there before, with the rights of any other."""
        if not stat.S_IMODE(self.private.stat().st_mode) & 0o077:
            return
        try:
            self.private.chmod(0o700)
        except PermissionError:
            raise UserError(
                '--workdir',
                f'{self.private} is open to other users, and belongs to one of them',
                'Give a new workdir, or have its owner take these rights away',
            ) from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder for one run.

        Raises:
            InUseError: another run holds it.
            UserError: it cannot be written, or is full.
        """
        with self._writing():
            file = open(self.private / 'lock', 'a')  # noqa: SIM115 (closed below)
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError(
                    '--workdir',
                    f'{self.root} is in use by another run',
                    'Wait, or give another',
                ) from None
            except OSError as error:  # such as Lustre mounted without flock
                raise UserError(
                    '--workdir',
                    f'{self.root} is on a file system that locks no files '
                    f'({error.strerror})',
                    'Give a folder on another, or have it mounted with locks',
                ) from None
            require_space(self.root, MIN_FREE_BYTES)
            yield

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds the time of a stage to those before it (a resumed stage adds up)."""
        start = time.monotonic()
        try:
            yield
        finally:
            seconds = self.wall_seconds()
            seconds[stage] = round(
                seconds.get(stage, 0.0) + time.monotonic() - start, 2
            )
            write_json(self.stages, seconds)

    def wall_seconds(self) -> dict[str, float]:
        """Seconds by stage."""
        return read_json(self.stages) or {}
