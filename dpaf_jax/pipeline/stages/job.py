"""What every stage of a run is given."""

import dataclasses
import io
import logging
import pathlib
from typing import Any

from dpaf_jax.config import Config
from dpaf_jax.data import Dataset
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import Teller
from dpaf_jax.training.signals import StopRequest
from dpaf_jax.training.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class Job:
    """One run, as its stages see it.

    Attributes:
        config: typed and checked, no field left open.
        workdir: where a stage finds what others have left, and leaves its own result.
        entropy: for tests: fixed, so that nothing is certified.
        stop: asked between windows and stages.
        checked: data that have been read once and compared, by folder and by what its
            files were then.
    """

    config: Config
    workdir: Workdir
    entropy: bytes | None
    stop: StopRequest
    checked: dict[Any, Dataset] = dataclasses.field(default_factory=dict)

    @property
    def data_directory(self) -> pathlib.Path:
        """Of the decoded private images."""
        return self.workdir.decoded(self.config.data.cache)

    def require(self, path: pathlib.Path, stage: str) -> None:
        """Refuses to go on without a file that an earlier stage leaves.

        Raises:
            UserError: it is not there.
        """
        if not path.exists():
            raise UserError(
                '--stage',
                f'needs {path}, which is not there',
                f'Run --stage={stage} first',
            )

    def teller(self, stage: str, tells: bool = True) -> Teller:
        """Tells how far a stage is, and ends it where a stop is asked for.

        Args:
            stage: its name.
            tells: False for what nobody may be told of.
        """
        return Teller(
            lambda line: logging.info('%s: %s', stage, line) if tells else None,
            None if tells else io.StringIO(),
            self.config.data.records,
            on_step=lambda: self.stop.check(stage),
        )
