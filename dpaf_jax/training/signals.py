"""SIGTERM and SIGINT: a run that is asked to stop saves what it has."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class Interrupted(Exception):
    """The run was asked to stop and has saved what it had."""


class StopRequest:
    """Notices SIGTERM and SIGINT.

    The training loop asks between windows, and saves. Everything else leaves its result
    whole or not at all, so there a signal ends the run at once.
    """

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self._where, self._deferred = 'the start', False

    def listen(self) -> None:
        """Takes the signals over; only possible in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    @property
    def signal_number(self) -> int:
        """0 if none has come."""
        return int(signal.Signals[self.signal_name]) if self.signal_name else 0

    def check(self, where: str) -> None:
        """Raises Interrupted if a signal has come; for work that saves nothing."""
        self._where = where
        if self.signal_name:
            raise Interrupted(
                f'{self.signal_name}: stopped in {where}. Run the same command to go on.'
            )

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, a signal raises nothing: who works there asks for `signal_name`."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _note(self, number: int, _: Any) -> None:
        # A second Ctrl-C means it; a second SIGTERM is what schedulers send anyway.
        if number == signal.SIGINT and self.signal_name == 'SIGINT':
            raise KeyboardInterrupt
        self.signal_name = self.signal_name or signal.Signals(number).name
        if not self._deferred:
            self.check(self._where)
