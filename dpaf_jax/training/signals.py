"""SIGTERM, SIGINT and SIGHUP: a run that is asked to stop saves what it has.

Python runs a signal's handler between two instructions, and a compiled call may take long.
So a thread answers at once, whatever the main thread does.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from dpaf_jax.runtime import processes

HEARD = signal.SIGTERM, signal.SIGINT, signal.SIGHUP  # the last: a terminal has closed
SOON = 0.05  # seconds, in which a callback ends
ENDED_BY_SIGNAL = 128  # plus its number: the exit status that shells report


class Interrupted(BaseException):
    """The run was asked to stop and has saved what it had: `except Exception` is not for it.

    Args:
        number: of the signal.
        what: was stopped, and where.
    """

    def __init__(self, number: int, what: str):
        name = signal.Signals(number).name
        super().__init__(f'{name}: {what}. Run the same command to go on.')
        self.status = ENDED_BY_SIGNAL + number


class WindowLeft(Exception):
    """A long window was left before it had changed the state: the loop saves that."""


class StopRequest:
    """Notices SIGTERM, SIGINT and SIGHUP.

    The training loop asks between windows, and saves. Everything else leaves its result
    whole or not at all, so there a signal ends the run at once. A second Ctrl-C ends it
    anywhere, as a kill would: what came after the last checkpoint is computed again.

    Attributes:
        signal_number: of the first that has come; 0 if none has.
        unsaved: whether something has been computed that no checkpoint has.
    """

    def __init__(self) -> None:
        self.signal_number = 0
        self.unsaved = False
        self._where, self._deferred = 'the start', False
        self._terminals: list[int] = []

    def listen(self) -> None:
        """Takes the signals over, but for SIGHUP under `nohup`.

        Only possible in the main thread.
        """
        # A shell has its background jobs ignore SIGINT, which is heard all the same.
        is_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        for number in HEARD:
            if number != signal.SIGHUP or not is_nohup:
                signal.signal(number, self._note)
        # Which they are cannot be told any more once the terminal has closed.
        self._terminals = [number for number in (1, 2) if os.isatty(number)]
        sys.unraisablehook = functools.partial(_once_more, sys.unraisablehook)
        _Watch.start(self)

    @contextlib.contextmanager
    def hearing_ctrl_c(self) -> Iterator[None]:
        """Inside, Ctrl-C of a script or a notebook saves first; then KeyboardInterrupt.

        A second one acts as it did before. In another thread than the main one nothing is
        heard: there Python allows no handler.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)

        def note(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, before)
            print('stopping after this step, again to abort', file=sys.stderr)
            self._note(number, frame)

        signal.signal(signal.SIGINT, note)
        try:
            yield
        except Interrupted as stopped:
            raise KeyboardInterrupt(str(stopped)) from None
        finally:
            signal.signal(signal.SIGINT, before)

    def check(self, where: str) -> None:
        """Raises Interrupted if a signal has come; for work that saves nothing."""
        self._where = where
        if self.signal_number:
            raise Interrupted(self.signal_number, f'stopped in {where}')

    def check_within_window(self) -> None:
        """Raises WindowLeft if a signal has come; for passes that change no state.

        Several processes go on to the end of their window: they must stop at the same one.
        """
        if self.signal_number and processes.count() == 1:
            raise WindowLeft

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, a signal raises nothing: who works there asks for `signal_number`."""
        self._deferred, self.unsaved = True, False
        try:
            yield
        finally:
            self._deferred = False

    def _note(self, number: int, _: Any) -> None:
        """In the main thread, when it comes to it."""
        self.signal_number = self.signal_number or number
        if not self._deferred:
            self.check(self._where)

    def answer(self, number: int, count: int) -> None:
        """In a thread, at once.

        Args:
            number: of the signal.
            count: how many of it have come; a second SIGTERM is what schedulers send anyway.
        """
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            # The next line there would be an error, before all is saved.
            for terminal in self._terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)
        if number == signal.SIGINT and count > 1:
            _end(number, f'{name}: aborted. Run the same command to go on.')
        elif self._deferred and not self.unsaved and processes.count() == 1:
            _end(number, str(Interrupted(number, 'stopped, nothing was to be saved')))
        elif number == signal.SIGINT:
            print('\nstopping after this step, again to abort', file=sys.stderr)


def _once_more(otherwise: Callable[[Any], Any], lost: Any) -> None:
    """Where a signal came while a callback ran, Python has dropped what it raised."""
    if isinstance(lost.exc_value, Interrupted):
        again = (os.getpid(), signal.SIGTERM)  # SIGINT would count as the second one
        threading.Timer(SOON, os.kill, again).start()
    else:
        otherwise(lost)


def _end(number: int, message: str) -> NoReturn:
    print(f'\n{message}', file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ENDED_BY_SIGNAL + number)


class _Watch:
    """The thread that is told of signals as they come, and the end of a pipe for it."""

    writing = -1

    @classmethod
    def start(cls, stop: StopRequest) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)  # as the interpreter demands
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if cls.writing >= 0:  # an earlier run's thread ends
            os.close(cls.writing)
        cls.writing = writing
        threading.Thread(target=_answer, args=(stop, reading), daemon=True).start()


def _answer(stop: StopRequest, reading: int) -> None:
    counts = {int(number): 0 for number in HEARD}
    with open(reading, 'rb', buffering=0) as pipe:
        while came := pipe.read(1):
            number = came[0]
            if number in counts:
                counts[number] += 1
                stop.answer(number, counts[number])
