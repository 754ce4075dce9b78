"""Whose keys a run draws from, and who may go on with a workdir where it has stopped.

A step must be released once, under one key. So what shapes a run is noted before its first
step; a later process with another config, code, environment, machine or data set is
refused, or, where only the machine is another and the run was stopped with nothing lost,
takes new keys from there on.
"""

import os
import pathlib
import secrets
from collections.abc import Callable
from typing import Any

from dpaf_jax.privacy.clipping import require_arithmetic
from dpaf_jax.privacy.keys import RunKeys, read_or_create_entropy
from dpaf_jax.runtime import processes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json, settle, write_json
from dpaf_jax.training import fingerprint
from dpaf_jax.training.checkpoint import NOTHING, Inherited, reached
from dpaf_jax.training.workdir import Workdir


class Stops:
    """Notes where a run was stopped with all saved that it had ever computed.

    A killed session has computed steps that no checkpoint holds. Whoever watched has seen
    what they gave. The next session computes them again under the same keys, but nobody
    knows how far the killed one had come: so no later stop counts, and the run never moves.
    """

    def __init__(self, workdir: Workdir):
        self._stopped, self._running = workdir.stopped, workdir.running
        self._folder = workdir.stopped.parent

    def begin(self) -> None:
        """In front of a phase's first window."""
        saved = reached(self._folder)
        if self._running.exists() or (read_json(self._stopped) or {}) != saved:
            write_json(self._running, {'lost': True})

    def compute(self) -> None:
        """From here on outputs exist that no checkpoint has, and a kill may lose."""
        if not self._running.exists():
            write_json(self._running, {'lost': False})
        self._stopped.unlink(missing_ok=True)
        settle(self._folder)

    def end(self) -> None:
        """All that this session has computed is in its checkpoints."""
        if (read_json(self._running) or {'lost': False})['lost']:
            return
        write_json(self._stopped, reached(self._folder))
        self._running.unlink(missing_ok=True)


def take_keys(
    workdir: Workdir,
    fixed: bytes | None,
    components: Callable[[bytes], dict[str, Any]],
) -> tuple[RunKeys, Inherited]:
    """The run's keys, the same in every process: the first draws, the others read its file.

    Args:
        workdir: of the run.
        fixed: entropy of a test; None draws it from the operating system.
        components: from the entropy to what shapes this run here (fingerprint.py).

    Returns:
        The keys, and the checkpoints that were saved under earlier ones.

    Raises:
        UserError: other circumstances than the run was started under, lost entropy, or
            arithmetic under which no clip holds.
    """
    require_arithmetic()
    processes.from_first(lambda: _make_entropy(workdir, fixed))
    entropy = fixed
    if entropy is None:
        _require_shared(workdir.entropy)
        entropy = read_or_create_entropy(workdir.entropy)
    parts = components(entropy)
    seen = fingerprint.veiled(parts, entropy)
    if unlike := fingerprint.changes(processes.from_first(lambda: seen), seen):
        raise UserError(
            '--cluster',
            f'a process differs from the first one: {unlike}',
            'Start all of them with one code, environment and command, on one type of '
            'machine: others round otherwise',
        )
    processes.from_first(lambda: _begin_or_resume(workdir, parts))
    noted, inherited = _noted(workdir.inherited), NOTHING
    if noted:
        inherited = Inherited(tuple(noted['fingerprints']), noted['steps'])
    return RunKeys(entropy, _identity(workdir, parts)), inherited


def _identity(workdir: Workdir, parts: dict[str, Any]) -> str:
    """The fingerprint of the run's keys: of what shapes it, and of its latest move.

    Two copies of a workdir that move may meet on machines of one kind, or come back to the
    one they left. Each move has coins of its own, so no key is under two states.
    """
    noted = _noted(workdir.inherited) or {}
    move = {'move': noted['coins']} if 'coins' in noted else {}
    return fingerprint.digest({**parts, **move})


def _make_entropy(workdir: Workdir, fixed: bytes | None) -> None:
    if fixed is not None:
        return
    # With new keys, steps since the last save would be released twice, paid once.
    if workdir.fingerprint.exists() and not workdir.entropy.exists():
        raise _lost(workdir.entropy, 'is missing, although training has begun here')
    read_or_create_entropy(workdir.entropy)


def _lost(path: pathlib.Path, problem: str) -> UserError:
    """Without this file steps that were released could be released again, paid once."""
    remedy = 'Restore it to resume, or give a new workdir: it spends epsilon anew'
    return UserError(str(path), problem, remedy)


def _noted(path: pathlib.Path) -> Any:
    """The content of a file without which nobody may go on; None where there is none."""
    try:
        return read_json(path)
    except UserError:
        raise _lost(path, 'is damaged') from None


def _require_shared(path: pathlib.Path) -> None:
    if not path.exists():
        raise UserError(
            '--workdir',
            f'{path} is there for the first process only',
            'Give a folder that every process sees',
        )


def _begin_or_resume(workdir: Workdir, parts: dict[str, Any]) -> None:
    """Notes what shapes this run, or compares it with what was noted."""
    before = _noted(workdir.fingerprint)
    if before is None and reached(workdir.stopped.parent):
        raise _lost(workdir.fingerprint, 'is missing, although training has begun here')
    if before and before.get(fingerprint.ENTROPY) != parts[fingerprint.ENTROPY]:
        raise _lost(workdir.entropy, 'is not what training began with')
    changed = fingerprint.changes(before, parts) if before else ''
    if changed and not _may_move(workdir, before, parts):
        raise UserError(
            '--workdir',
            f'{workdir.root} was started under other circumstances: {changed}',
            'Restore them to resume, or give a new workdir: it takes new keys and '
            'spends epsilon anew. Only another machine is allowed '
            f'({", ".join(fingerprint.MACHINE)}), and only where a signal has stopped '
            'the run, nothing of it was ever killed, and the last checkpoint is there',
        )
    if changed:
        _inherit(workdir, _identity(workdir, before))
    if changed or not before:
        write_json(workdir.fingerprint, parts)
        os.chmod(workdir.fingerprint, 0o600)


def _may_move(workdir: Workdir, before: dict[str, Any], parts: dict[str, Any]) -> bool:
    """Whether only the machine is another, and no step can be released twice.

    Another machine means other keys, and rounding that may differ in a bit. That is safe
    where the last checkpoint holds all that was ever computed (`Stops`): each step then has
    been released once, whatever keys the next one takes.
    """
    changed = {n for n in {*before, *parts} if before.get(n) != parts.get(n)}
    stopped = read_json(workdir.stopped)
    if not changed <= {*fingerprint.MACHINE} or not stopped:
        return False
    return bool(stopped == reached(workdir.stopped.parent))


def _inherit(workdir: Workdir, owner: str) -> None:
    earlier = (_noted(workdir.inherited) or {}).get('fingerprints', [])
    content = {
        'fingerprints': [*earlier, owner],
        'steps': read_json(workdir.stopped),
        'coins': secrets.token_hex(32),
    }
    write_json(workdir.inherited, content)
    os.chmod(workdir.inherited, 0o600)
