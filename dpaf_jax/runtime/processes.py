"""Several processes as one run: how they meet, what they agree on, how all of them end.

Each process runs the same program on its own devices, and the first one alone writes. What
crosses devices is parallel.py's; here are the small values that cross processes, through
JAX's coordination service. Nobody has to show a password there: no key and no function of
private data may pass through it but in the hash of both.
"""

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import jax
from jax._src import distributed  # the service has no public name

from dpaf_jax.runtime.errors import UserError

T = TypeVar('T')
POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0  # for the others to notice an end
MEET_SECONDS = 1800  # a cluster may have to find machines for the others first
MOST_PORT = 65535
GONE = re.compile(r'gloo|nccl|connection|socket|peer|unavailable|heartbeat', re.I)


class _Process:
    """This one, among those of the run."""

    index, count, shared = 0, 1, 0
    client: Any = None
    left = threading.Event()
    watch: threading.Thread
    ending = threading.Lock()


def parse(cluster: str) -> dict[str, Any]:
    """The arguments of `jax.distributed.initialize` that '--cluster' stands for.

    Args:
        cluster: 'auto' (SLURM, TPU slices, Kubernetes, MPI: JAX asks the environment), or
            'ADDRESS:PORT,INDEX,COUNT' with the address of process 0 and a free port there.

    Raises:
        UserError: it is neither.
    """
    if cluster == 'auto':
        return {}
    match = re.fullmatch(r'(.+:(\d+)),(\d+),(\d+)', cluster)
    if not match or int(match[3]) >= int(match[4]) or int(match[2]) > MOST_PORT:
        raise UserError(
            '--cluster',
            f'is {cluster!r}',
            "Use 'auto', or ADDRESS:PORT,INDEX,COUNT with INDEX below COUNT and PORT at "
            f'most {MOST_PORT}',
        )
    return {
        'coordinator_address': match[1],
        'process_id': int(match[3]),
        'num_processes': int(match[4]),
        'cluster_detection_method': 'deactivate',
    }


def join(cluster: str) -> None:
    """Waits for the other processes of the run; before JAX has looked for devices.

    Raises:
        UserError: the flag is wrong, there is no cluster, or the others did not come.
    """
    if not cluster:
        return
    arguments = parse(cluster)
    # Where they do not come, the service ends this process with a message of its own.
    print(
        f'waiting for the other processes of --cluster={cluster}, at most '
        f'{MEET_SECONDS // 60} min',
        flush=True,
    )
    # training.signals listens itself.
    jax.config.update('jax_enable_preemption_service', False)
    try:
        jax.distributed.initialize(**arguments, initialization_timeout=MEET_SECONDS)
    except (ValueError, RuntimeError) as error:
        raise UserError(
            '--cluster',
            f'is {cluster!r}, and the run did not come together '
            f'({str(error).splitlines()[0]})',
            'Start as many processes as it says, each with its own index, where all '
            'reach the first one',
        ) from error
    state = distributed.global_state
    _Process.index, _Process.count = state.process_id, state.num_processes
    _Process.client = state.client
    if count() == 1:
        return
    _Process.watch = threading.Thread(target=_watch, daemon=True)
    _Process.watch.start()


def index_of(cluster: str) -> int | None:
    """The index of this process as the flag tells it, before any has met; None for 'auto'.

    Args:
        cluster: as `parse` takes it; '' is one process.
    """
    index: int | None = parse(cluster).get('process_id') if cluster else 0
    return index


def count() -> int:
    """Processes of the run that are together."""
    return _Process.count


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return _Process.index == 0


def from_first(make: Callable[[], T]) -> T:
    """The first process's value, which it makes and the others wait for.

    Args:
        make: returns what JSON has; called in the first process alone.
    """
    if count() == 1:
        return make()
    _Process.shared += 1
    name = f'value/{_Process.shared}'
    if is_first():
        value = make()
        _Process.client.key_value_set(name, json.dumps(value))
        return value
    while True:  # in short waits: signals are heard in between
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            return json.loads(_Process.client.blocking_key_value_get(name, 1000))


def check_same(what: str, value: str) -> None:
    """Compares a value with the first process's.

    Args:
        what: for the message.
        value: public, or a tag under the run's entropy (`RunKeys.tag`).

    Raises:
        RuntimeError: it is another one.
    """
    if from_first(lambda: value) != value:
        raise RuntimeError(f'{what} differ between processes: this is a bug')


def leave() -> None:
    """Parts when all have come to this point; each goes on alone, or ends."""
    if count() > 1:
        _Process.count = 1
        _Process.left.set()
        _Process.watch.join()
        jax.distributed.shutdown()


def end(status: int, message: str) -> NoReturn:
    """Ends this process, and with it all others, with one message.

    The first process prints it; one that cannot reach the first prints its own.
    """
    if count() == 1:
        print(message, file=sys.stderr)
        sys.exit(status)
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # somebody else was earlier
        if not is_first() and not message.startswith(('SIGTERM', 'SIGINT', 'SIGHUP')):
            message = f'process {_Process.index} of {_Process.count}: {message}'
        _Process.client.key_value_set('end', json.dumps([status, message]))
    _end_as_told(_told() or (status, message), prints=is_first() or _told() is None)


def end_where_another_is_gone(error: Exception, status: int) -> None:
    """Ends the run if `error` is what the loss of another process looks like.

    Its end may have a reason that is about to be told; a kill has none.
    """
    if count() > 1 and GONE.search(str(error)):
        time.sleep(GRACE_SECONDS)
        first_line = str(error).splitlines()[0][:200]
        end(
            status,
            f'another process is gone ({first_line}). Run the same command to go on.',
        )


def _told() -> tuple[int, str] | None:
    try:
        status, message = json.loads(_Process.client.key_value_try_get('end'))
        return status, message
    except jax.errors.JaxRuntimeError:
        return None


def _watch() -> None:
    """Ends this process when one is told to have ended: its main thread may be waiting."""
    while not _Process.left.wait(POLL_SECONDS):
        if told := _told():
            _end_as_told(told, prints=is_first())


def _end_as_told(told: tuple[int, str], prints: bool) -> NoReturn:
    _Process.ending.acquire()  # one thread of two, until the end
    status, message = told
    if prints:
        print(message, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    if is_first():  # the service ends with this process
        time.sleep(4 * POLL_SECONDS)
    os._exit(status)  # what else there is at an exit waits for the others
