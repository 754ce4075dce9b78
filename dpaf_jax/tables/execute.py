"""Runs what is not there yet, several at a time; each in a process of its own."""

import itertools
import os
import pathlib
import queue
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import IO, NamedTuple

from dpaf_jax.runtime.command import EXIT_AGAIN, HOME
from dpaf_jax.runtime.files import write_text
from dpaf_jax.tables.runs import Run

WAIT = 0.2  # seconds between two looks at a process
VISIBLE = 'CUDA_VISIBLE_DEVICES'


class Outcome(NamedTuple):
    """How a run ended.

    Attributes:
        run: which.
        status: 0, or that of the command that failed.
        minutes: on the clock.
        reason: why, if it failed: the last line of its log.
    """

    run: Run
    status: int
    minutes: float
    reason: str


def wanted(runs: Iterable[Run], part: tuple[int, int]) -> list[Run]:
    """Each run once, of those that have their data and are not done: this part's share.

    Args:
        runs: of all cells; of two with one key that which is attacked.
        part: (i, n): every n-th, beginning with the i-th (from 1). The shares do not
            depend on what is done, so that the tasks of an array do not meet.
    """
    there = sorted(
        (run for run in runs if not run.lacks), key=lambda run: bool(run.attack)
    )
    once = {run.key: run for run in there}
    index, count = part
    mine = [once[key] for key in sorted(once)][index - 1 :: count]
    return [run for run in mine if not run.is_done]


def execute(
    runs: Sequence[Run],
    jobs: int,
    on_end: Callable[[Outcome], None],
    on_start: Callable[[Run], None] = lambda run: None,
) -> list[Outcome]:
    """Runs all of them; one that fails does not stop the others.

    Args:
        runs: to be run.
        jobs: at a time. Where they are several, each has one of this machine's GPUs.
        on_end: is told of each, in this thread.
        on_start: is told of each, in a thread of the run's.

    Returns:
        Those that failed.

    Raises:
        BaseException: what a signal raises here, after each process was told to stop; it
            saves first.
    """
    for made in {run.reads for run in runs if run.reads}:
        made.write()
    failed = []
    pool = _Pool(on_start, gpus() if jobs > 1 else [], jobs)
    with ThreadPoolExecutor(jobs) as threads:
        futures = [threads.submit(pool.run, run) for run in runs]
        try:
            for future in as_completed(futures):
                outcome = future.result()
                on_end(outcome)
                if outcome.status:
                    failed.append(outcome)
        except BaseException:
            pool.stop()
            threads.shutdown(cancel_futures=True)
            raise
    return failed


class _Pool:
    """The processes of several threads, which stop together.

    Args:
        on_start: see `execute`.
        cards: the GPUs that they share, one for each process; none: all see all there is.
        jobs: processes at a time.
    """

    def __init__(
        self, on_start: Callable[[Run], None], cards: list[str], jobs: int
    ) -> None:
        self.on_start, self.stopped = on_start, False
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.cards: queue.SimpleQueue[str] = queue.SimpleQueue()  # '': all there is
        for card in itertools.islice(itertools.cycle(cards or ['']), jobs):
            self.cards.put(card)

    def stop(self) -> None:
        self.stopped = True
        for process in list(self.processes):
            process.terminate()

    def run(self, run: Run) -> Outcome:
        start, status = time.monotonic(), 0
        run.log.parent.mkdir(parents=True, exist_ok=True)
        run.failure_file.unlink(missing_ok=True)
        self.on_start(run)
        card = self.cards.get()
        try:
            with run.log.open('a', encoding='utf-8') as log:
                for command in run.commands:
                    status = status or self._one(command, log, card)
        finally:  # or another run would wait for it
            self.cards.put(card)
        minutes = (time.monotonic() - start) / 60
        reason = _reason(run, status) if status else ''
        if status not in (0, EXIT_AGAIN) and not self.stopped:
            write_text(run.failure_file, reason)
        return Outcome(run, status, minutes, reason)

    def _one(self, command: list[str], log: IO[str], card: str) -> int:
        if self.stopped:
            return 1
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(card),
            start_new_session=True,  # a Ctrl-C reaches it through us, once
        )
        self.processes.add(process)
        if self.stopped:  # since it was asked above
            process.terminate()
        try:
            while process.poll() is None:
                time.sleep(WAIT)
        finally:
            self.processes.discard(process)
        return int(process.returncode)


def _environment(card: str) -> dict[str, str]:
    """This one's, with the package found from any folder, and with one GPU alone, if any."""
    paths = [HOME, *filter(None, [os.environ.get('PYTHONPATH')])]
    own = {VISIBLE: card} if card else {}
    return {**os.environ, 'PYTHONPATH': os.pathsep.join(paths), **own}


def gpus() -> list[str]:
    """The NVIDIA GPUs that processes started here may use, as CUDA numbers them."""
    if (visible := os.environ.get(VISIBLE)) is not None:
        return [card for card in visible.split(',') if card]
    there = sorted(pathlib.Path('/dev').glob('nvidia[0-9]*'))
    return [str(number) for number in range(len(there))]


def _reason(run: Run, status: int) -> str:
    """The last line of its log; a kill leaves none of its own."""
    if status < 0:
        return f'killed by {signal.Signals(-status).name}: too little memory?'
    lines = run.log.read_text(encoding='utf-8', errors='replace').splitlines()
    told = [line for line in lines if line.strip()]
    return told[-1].strip() if told else f'exit status {status}'
