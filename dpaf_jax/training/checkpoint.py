"""Checkpoints of a run: Orbax, atomic, the last few kept, one folder per phase.

What resumes a run: the newest complete checkpoint of its phase, or the phase's start.
All randomness derives from the run's entropy and the step, so nothing else is needed
for the resumed run to repeat the uninterrupted one, on CPU bit for bit. Elsewhere bits may
differ, so nothing of a step is told before a checkpoint has it (session.py).

On other devices it would not: there it has other keys, and may only go on from where it
stopped (`Inherited`). With several processes all save and restore together; the first one
writes.
"""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from dpaf_jax.runtime import processes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import require_space
from dpaf_jax.runtime.parallel import digest

Tree = TypeVar('Tree')


@dataclasses.dataclass(frozen=True)
class Inherited:
    """What sessions with other fingerprints have left.

    Their steps have been released with other keys: computing one again would release it
    twice and charge it once.

    Attributes:
        fingerprints: of those sessions, hexadecimal.
        steps: by phase, how far they came; where this session goes on.
    """

    fingerprints: tuple[str, ...]
    steps: Mapping[str, int]


NOTHING = Inherited((), {})

# What reading a checkpoint raises whose files are cut, lost or changed: JSON's, Unicode's
# and TensorStore's errors are ValueErrors. Anything else is no reason to delete a folder.
DAMAGED = (ValueError, KeyError, FileNotFoundError)


def reached(folder: pathlib.Path) -> dict[str, int]:
    """The newest checkpoint of each phase in a run's folder of checkpoints."""
    saved: dict[str, int] = {}
    for path in folder.glob('*/*'):
        if path.name.isdecimal():
            phase = path.parent.name
            saved[phase] = max(saved.get(phase, 0), int(path.name))
    return saved


class Checkpoints:
    """Saves and restores the state of one phase.

    Args:
        directory: of this phase; created when first saved to.
        keep: how many checkpoints to keep.
        fingerprint: of the run, hexadecimal: whose checkpoints are saved and restored.
        inherited: whose are restored, too: at the step alone at which they were left.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        keep: int,
        fingerprint: str,
        inherited: Inherited = NOTHING,
    ):
        logging.getLogger('absl').setLevel(logging.WARNING)
        self._directory = directory.absolute()
        self._owner = np.frombuffer(bytes.fromhex(fingerprint), np.uint8)
        self._heirloom = inherited.fingerprints
        self._first_step = inherited.steps.get(directory.name, 0)
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, create=True, enable_async_checkpointing=False
            ),
        )
        self._directory.chmod(0o700)  # G-PATE's teachers remember private records

    def latest_step(self) -> int | None:
        """The newest complete checkpoint's step."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any) -> None:
        """Writes host arrays; visible only when complete.

        Raises:
            UserError: the folder cannot be written, as on a full disk.
        """
        if step == self.latest_step():
            return
        # Asked before: Orbax tells of a full disk from several threads, with tracebacks.
        size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(state))
        require_space(
            self._directory,
            size + size // 4 + 2**20,
            'Free them, or move the whole run to another disk: a new workdir spends '
            'epsilon anew',
        )
        try:
            content = {'run': self._owner, 'sum': _checksum(state), 'state': state}
            self._manager.save(step, args=ocp.args.StandardSave(content))
            self._manager.wait_until_finished()
        except OSError as error:
            raise UserError(
                str(self._directory),
                f'the checkpoint of step {step} could not be written ({error})',
                'Free some space and start again: the run resumes from the last one',
            ) from error

    def restore(self, like: Tree) -> tuple[Tree, int] | None:
        """The newest checkpoint and its step; None if there is none.

        Args:
            like: a tree of the expected structure, shapes and dtypes.

        Raises:
            UserError: the checkpoint is damaged or belongs to something else.
        """
        step = processes.from_first(self.latest_step)
        if (step or 0) < self._first_step:
            raise UserError(
                f'{self._directory}/{self._first_step}',
                'is missing: steps up to it were released before the devices changed',
                'Restore it to resume, or give a new workdir: it spends epsilon anew',
            )
        if step is None:
            return None
        expected = {'run': self._owner, 'sum': _checksum(like), 'state': like}
        try:
            content = self._manager.restore(
                step, args=ocp.args.StandardRestore(expected)
            )
            if not np.array_equal(content['sum'], _checksum(content['state'])):
                raise ValueError('its checksum is another')
            if _shapes(content['state']) != _shapes(like):
                raise ValueError('its shapes are others')
        except DAMAGED as error:
            raise self._unusable(step, f'is damaged ({_first_line(error)})') from error
        if not self._may_use(content['run'], step):
            raise UserError(
                f'{self._directory}/{step}',
                'this checkpoint belongs to another run',
                'Restore its private/ folder to resume, or give a new workdir: it spends '
                'epsilon anew',
            )
        return content['state'], step

    def _may_use(self, owner: np.ndarray, step: int) -> bool:
        if np.array_equal(owner, self._owner):
            return True
        return bytes(owner).hex() in self._heirloom and step == self._first_step

    def _unusable(self, step: int, problem: str) -> UserError:
        remedy = (
            'Delete this folder to resume from the one before it, if there is one; the steps '
            'since then are computed again with the same keys and bits'
            if jax.default_backend() == 'cpu'
            else 'Restore it, or give a new workdir: it spends epsilon anew. Steps that are '
            'computed again on this device may give other bits under the same noise'
        )
        return UserError(
            f'{self._directory}/{step}', f'this checkpoint {problem}', remedy
        )

    def close(self) -> None:
        """Releases the manager's threads."""
        self._manager.close()


def _checksum(state: Any) -> np.ndarray:
    """SHA-256 over all leaves: what is on a disk is not checked by anybody else."""
    return np.frombuffer(digest(state), np.uint8)


def _shapes(state: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(state)]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
