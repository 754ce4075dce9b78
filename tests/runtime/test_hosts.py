"""A run of several processes: the results of one, and one end for all of them."""

import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np
import pytest
import tiny_runs
from safetensors.numpy import load

from dpaf_jax.runtime import processes as hosts
from dpaf_jax.runtime.errors import UserError

SCRIPT = tiny_runs.ROOT / 'tests' / 'processes.py'
CONFIGS = {'one_shot': 'digits.py:one_shot', 'canonical': 'digits.py:printed'}
SECONDS = 900  # of a busy machine


class Ended(NamedTuple):
    """One process: its exit status, what it wrote."""

    code: int
    out: str
    err: str


class Cluster:
    """Processes on this machine that share a workdir."""

    def __init__(self, folder: pathlib.Path, kind: str):
        self.folder, self.workdir, self._kind = folder, folder / 'run', kind
        source = tiny_runs.write_npz(folder / 'images.npz')
        name, _, argument = CONFIGS[kind].partition(':')
        config = tiny_runs.resumable(kind, source)
        config.run.devices = 0
        if kind == 'one_shot':
            config.dpaf.generator_steps = 8
        base = tiny_runs.load_config(name.removesuffix('.py'), argument)
        self._flags = tiny_runs.flags_of(config, base)

    def run(
        self, processes, devices=1, who=0, does='', at=None, machine=False, flags=()
    ):
        """Starts all, waits for all; process `who` does something when it is `at` a step."""
        port, started = free_port(), []
        for index in range(processes):
            settings = {'devices': devices, 'machine': machine, 'at': at}
            settings['does'] = does if index == who else ''
            cluster = f'--cluster=localhost:{port},{index},{processes}'
            config = tiny_runs.ROOT / 'configs' / CONFIGS[self._kind]
            command = [
                *(sys.executable, str(SCRIPT), json.dumps(settings)),
                *(f'--config={config}', f'--workdir={self.workdir}'),
                *(*self._flags, *([cluster] if processes > 1 else []), *flags),
            ]
            started.append(start(command))
        return [collect(process) for process in started]

    def done(self, processes, devices=1, **options):
        for ended in self.run(processes, devices, **options):
            assert ended.code == 0, ended.err
        return self

    @property
    def generator(self) -> bytes:
        return (self.workdir / 'release' / 'generator.safetensors').read_bytes()

    def saved(self, phase: str) -> set[int]:
        folder = self.workdir / 'checkpoints' / phase
        return {int(path.name) for path in folder.glob('[0-9]*')}


def start(command) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tiny_runs.ROOT,
        env=os.environ | {'PYTHONPATH': f'{tiny_runs.ROOT}:{tiny_runs.ROOT / "tests"}'},
    )


def collect(process: subprocess.Popen) -> Ended:
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f'still running: {out}{err}') from None
    return Ended(process.returncode, out, err)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('localhost', 0))
        return probe.getsockname()[1]


def messages(ended: list[Ended]) -> list[str]:
    """Lines of all processes that are ours and not of a library."""
    lines = itertools.chain(*(one.err.splitlines() for one in ended))
    return [x for x in lines if x.startswith(('error:', 'SIG', 'process', 'another'))]


# --- what --cluster may say -----------------------------------------------------------


def test_a_cluster_is_found_or_given():
    assert hosts.parse('auto') == {}
    told = [hosts.index_of(each) for each in ('', 'auto', 'node7.local:4321,1,4')]
    assert told == [0, None, 1]
    found = hosts.parse('node7.local:4321,1,4')
    assert found['coordinator_address'] == 'node7.local:4321'
    assert (found['process_id'], found['num_processes']) == (1, 4)


@pytest.mark.parametrize(
    'cluster', ['auto,1', 'node7', 'node7:1,4,4', 'node7:1,-1,4', 'node7:65536,0,2']
)
def test_what_is_no_cluster_is_refused(cluster):
    with pytest.raises(UserError, match='--cluster: is .*ADDRESS:PORT,INDEX,COUNT'):
        hosts.parse(cluster)


def test_a_signal_ends_the_wait_for_others_at_once(tmp_path):
    script = (
        'import sys\n'
        'from dpaf_jax import main\n'
        f'sys.argv = ["main", "--config=configs/digits.py", "--workdir={tmp_path}/run",'
        f' "--cluster=127.0.0.1:{free_port()},0,2"]\n'
        'main.run()\n'
    )
    with subprocess.Popen(
        [sys.executable, '-c', script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tiny_runs.ROOT,
    ) as process:
        lines = iter(process.stdout)
        assert any(line.startswith('waiting for the other') for line in lines)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143
        assert 'SIGTERM: stopped, nothing was to be saved' in process.stderr.read()


def test_alone_there_is_nobody_to_wait_for():
    assert (hosts.count(), hosts.is_first()) == (1, True)
    assert hosts.from_first(lambda: {'a': 1}) == {'a': 1}
    hosts.check_same('states', 'x')
    hosts.leave()


# --- real processes -------------------------------------------------------------------


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """An uninterrupted run of one process with two devices, by kind."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = Cluster(folder, kind).done(1, 2)
        return made[kind]

    return get


@pytest.fixture
def cluster(whole):
    """Makes another run on the same data; its workdir is its own."""
    counter = itertools.count()

    def make(kind='one_shot'):
        made = Cluster(whole(kind).folder, kind)
        made.workdir = made.folder / f'run-{time.monotonic_ns()}-{next(counter)}'
        return made

    return make


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['one_shot', 'canonical'])
def test_two_processes_make_the_bits_of_one_with_two_devices(cluster, whole, kind):
    run = cluster(kind).done(2)
    assert run.generator == whole(kind).generator


@pytest.mark.slow
@pytest.mark.parametrize('who', [0, 1])
def test_a_signal_to_any_process_stops_all_at_one_step(cluster, whole, who):
    run = cluster()
    ended = run.run(2, who=who, does='SIGTERM', at=['gan', 4])
    assert [one.code for one in ended] == [143, 143]
    assert run.saved('gan') == {5}  # several processes hear of it one window later
    assert messages(ended) == [
        'SIGTERM: stopped at gan step 5 of 8 and saved. Run the same command to go on.'
    ]
    assert run.done(2).generator == whole('one_shot').generator


@pytest.mark.slow
@pytest.mark.parametrize(
    ('does', 'code', 'message'),
    [
        ('fail', 2, 'error: config.run: is made to fail. Do not.'),
        ('crash', 1, 'error: ValueError: unforeseen'),
    ],
)
@pytest.mark.parametrize('who', [0, 1])
def test_an_error_of_one_process_ends_all_with_one_message(
    cluster, who, does, code, message
):
    ended = cluster().run(2, who=who, does=does, at=['gan', 4])
    assert [one.code for one in ended] == [code, code]
    of = f'process {who} of 2: ' if who else ''
    assert messages(ended) == [of + message]


@pytest.mark.slow
def test_where_one_is_killed_the_others_end_to_be_started_again(cluster, whole):
    run = cluster()
    killed, other = run.run(2, who=1, does='SIGKILL', at=['gan', 4])[::-1]
    assert killed.code == -signal.SIGKILL
    assert other.code == 144 or other.code < 0, other.err  # what launchers start again
    assert run.done(2).generator == whole('one_shot').generator


@pytest.mark.slow
def test_on_other_processes_a_stopped_run_goes_on_with_other_keys(cluster, whole):
    run = cluster()
    assert run.run(2, does='SIGTERM', at=['gan', 4], machine=True)[0].code == 143
    run.done(1, 1, machine=True)
    noted = json.loads((run.workdir / 'private' / 'inherited.json').read_text())
    # A window of one step is computed ahead of what is told.
    assert len(noted['fingerprints']) == 1 and noted['steps'] == {'gan': 5}


@pytest.mark.slow
def test_on_other_processes_a_killed_run_is_refused(cluster):
    run = cluster()
    run.run(2, does='SIGKILL', at=['gan', 4], machine=True)
    [ended] = run.run(1, 1, machine=True)
    assert ended.code == 2 and 'device count (was 2, now 1)' in ended.err


@pytest.mark.slow
def test_only_the_first_process_writes_and_talks(cluster):
    run = cluster()
    first, second = run.run(2)
    assert 'gan  step' in first.out and 'gan  step' not in second.out
    steps = [
        json.loads(line)['step']
        for line in (run.workdir / 'history.jsonl').read_text().splitlines()
    ]
    assert steps == sorted(set(steps))


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['one_shot', 'canonical'])
def test_four_processes_make_the_generator_of_one_with_four_devices(cluster, kind):
    """But for rounding: fakes' gradients are added in another order between processes."""
    one, four = (load(cluster(kind).done(*n).generator) for n in ((1, 4), (4,)))
    assert one.keys() == four.keys()
    for name, value in one.items():
        np.testing.assert_allclose(four[name], value, rtol=1e-3, atol=1e-4)
