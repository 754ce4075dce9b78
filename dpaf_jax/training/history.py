"""The rows of a run in history.jsonl."""

import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpaf_jax.runtime.errors import UserError


class History:
    """Rows of a run's history in `<workdir>/history.jsonl`, one JSON object a line.

    A row is {'phase': str, 'step': int, 'seconds': float, ...}; rows are in the order
    in which the run made them. A last line that a killed run has left unfinished is
    no row, and the next write removes it. Each method raises UserError if any other
    line is no JSON object with phase and step.

    Args:
        workdir: the folder; made when the first row is.
    """

    def __init__(self, workdir: str | os.PathLike[str]):
        self._path = pathlib.Path(workdir) / 'history.jsonl'
        self._whole = False

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row; numbers that are not finite become null."""
        if not self._whole:
            self._cut(sum(len(line) for line, _ in self._lines()))
            self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({name: _plain(value) for name, value in row.items()}) + '\n'
        with self._path.open('ab') as file:
            file.write(line.encode())

    def rows(self) -> list[dict[str, Any]]:
        """All whole rows, oldest first."""
        return [row for _, row in self._lines()]

    def truncate(self, phase: str, step: int) -> None:
        """Forgets what came after `step` of `phase`: a resumed run does it again.

        Args:
            phase: in which the run resumes.
            step: of its checkpoint; rows up to it, and of earlier phases, stay.
        """
        size, seen = 0, False
        for line, row in self._lines():
            here = row['phase'] == phase
            if (here and row['step'] > step) or (seen and not here):
                break
            seen = seen or here
            size += len(line)
        self._cut(size)

    def seconds(self, phase: str) -> float:
        """Seconds that the phase had taken at its last row; 0 if it has none."""
        times = [row.get('seconds') for row in self.rows() if row['phase'] == phase]
        return float(times[-1] or 0.0) if times else 0.0

    def _lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b'\n'):
            lines.pop()
        return [(line, self._row(line, i)) for i, line in enumerate(lines, 1)]

    def _row(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
            if isinstance(row['phase'], str) and isinstance(row['step'], int):
                return row
        except (ValueError, TypeError, KeyError):
            pass
        raise UserError(
            f'{self._path}, line {number}', 'is damaged', 'Delete the line or the file'
        )

    def _cut(self, size: int) -> None:
        if self._path.exists() and size < self._path.stat().st_size:
            os.truncate(self._path, size)
        self._whole = True


def _plain(value: Any) -> Any:
    """A value that JSON has: arrays of one number are numbers, NaN is null."""
    if isinstance(value, np.ndarray | np.generic) or hasattr(
        value, 'addressable_shards'
    ):
        value = np.asarray(value).item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
