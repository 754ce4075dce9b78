"""A run that is cut off anywhere goes on as if it had not been: the same bits."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
from unittest import mock

import pytest
import tiny
import tiny_runs
from tensorboardX import SummaryWriter
from tensorboardX.proto import event_pb2

from dpaf_jax.methods import dpaf
from dpaf_jax.methods.dpaf.phase1 import classifier_phase
from dpaf_jax.methods.dpaf.phase2.one_shot_phase import OneShotPhase
from dpaf_jax.methods.dpaf.phase2.whitening import Whitening
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.training.history import History
from dpaf_jax.training.progress import Progress
from dpaf_jax.training.run import Run
from dpaf_jax.training.signals import Interrupted, StopRequest

# Runs a config up to its release with a fixed entropy, as `main` does, and notes every
# key it takes. With a phase and a step: sends itself a signal when it has come so far.
DRIVER = """
import json, os, signal, sys
import tiny_runs
from dpaf_jax.methods.dpaf.phase1 import classifier_phase
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.training.progress import Progress
from dpaf_jax.training.signals import Interrupted, StopRequest

kind, source, workdir, log, number, phase, step, seconds = sys.argv[1:]
quick = tiny_runs.accounting_grid()
quick.__enter__()  # for as long as the process lives
classifier_phase.WINDOW = 2  # compiles sooner
update, taken = Progress.update, RunKeys._digest

def cut(self, at, metrics):
    update(self, at, metrics)
    if (self.phase, at) == (phase, int(step)):
        os.kill(os.getpid(), int(number))

def note(self, purpose, at):
    value = taken(self, purpose, at)
    with open(log, 'a') as file:
        file.write(json.dumps([purpose, at, value.hex()]) + '\\n')
    return value

Progress.update, RunKeys._digest = cut, note
stop = StopRequest()
stop.listen()
config = tiny_runs.resumable(kind, source)
config.run.checkpoint_seconds = float(seconds)
pipeline = Pipeline(config, workdir, entropy=tiny_runs.ENTROPY, stop=stop)
try:
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
except Interrupted as notice:
    print(notice, file=sys.stderr)
    sys.exit(143)
"""
TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)


class Session:
    """One run directory that several processes work on, one after the other."""

    def __init__(self, folder: pathlib.Path, kind: str, source: str):
        self.folder, self.workdir = folder, folder / 'run'
        self._kind, self._source = kind, source
        folder.mkdir()

    def process(self, number=0, phase='none', step=0, seconds=300.0, flags=''):
        """Runs until it is done or cut; its exit status and what it said."""
        args = (
            self._kind,
            self._source,
            self.workdir,
            self.folder / 'keys',
            number,
            phase,
        )
        python = {'PYTHONPATH': f'{tiny_runs.ROOT}:{tiny_runs.ROOT / "tests"}'}
        if flags:
            python['XLA_FLAGS'] = f'{os.environ["XLA_FLAGS"]} {flags}'
        return tiny_runs.run_python(
            *('-c', DRIVER, *map(str, (*args, step, seconds))), environment=python
        )

    def done(self) -> None:
        """Runs in this process until it is done."""
        taken = RunKeys._digest

        def note(keys, purpose, at):
            value = taken(keys, purpose, at)
            with (self.folder / 'keys').open('a') as file:
                file.write(json.dumps([purpose, at, value.hex()]) + '\n')
            return value

        with (
            mock.patch.object(RunKeys, '_digest', note),
            mock.patch.object(classifier_phase, 'WINDOW', 2),
        ):
            config = tiny_runs.resumable(self._kind, self._source)
            pipeline = Pipeline(config, self.workdir, entropy=tiny_runs.ENTROPY)
            for stage in ('prepare', 'plan', 'train', 'release'):
                pipeline.run(stage)

    @property
    def generator(self) -> bytes:
        return (self.workdir / 'release' / 'generator.safetensors').read_bytes()

    def history(self) -> list[dict]:
        lines = (self.workdir / 'history.jsonl').read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return [{k: v for k, v in row.items() if k != 'seconds'} for row in rows]

    def events(self) -> list[tuple[str, int, float]]:
        """All points of curves that TensorBoard would find, and steps of pictures."""
        return [
            (value.tag, event.step, value.simple_value)
            for path in sorted((self.workdir / 'tensorboard').glob('*/*'))
            for event in read_events(path)
            for value in event.summary.value
        ]

    def keys(self) -> dict[tuple[str, int], set[str]]:
        found: dict[tuple[str, int], set[str]] = {}
        for line in (self.folder / 'keys').read_text().splitlines():
            purpose, step, value = json.loads(line)
            found.setdefault((purpose, step), set()).add(value)
        return found

    def saved(self, phase: str) -> list[int]:
        folder = self.workdir / 'checkpoints' / phase
        return sorted(int(path.name) for path in folder.glob('[0-9]*'))


def read_events(path: pathlib.Path) -> list[event_pb2.Event]:
    """The records of an event file: length, its checksum, content, its checksum."""
    content, found, at = path.read_bytes(), [], 0
    while at < len(content):
        (size,) = struct.unpack_from('<Q', content, at)
        found.append(event_pb2.Event.FromString(content[at + 12 : at + 12 + size]))
        at += size + 16
    return found


@pytest.fixture(scope='module')
def source(tmp_path_factory) -> str:
    """The one data set of all sessions: its path is part of the fingerprint."""
    return tiny_runs.write_npz(tmp_path_factory.mktemp('data') / 'images.npz')


@pytest.fixture
def session(tmp_path, source):
    """Makes a session of a kind."""
    return lambda kind: Session(tmp_path / 'session', kind, source)


@pytest.fixture(scope='module')
def whole(tmp_path_factory, source):
    """Uninterrupted runs, by kind, made when they are asked for."""
    folder, made = tmp_path_factory.mktemp('whole'), {}

    def get(kind: str) -> Session:
        if kind not in made:
            made[kind] = Session(folder / kind, kind, source)
            made[kind].done()
        return made[kind]

    return get


def assert_same(session: Session, reference: Session) -> None:
    """Bits, curves and plan as without interruption; no key used for two things."""
    assert session.generator == reference.generator
    assert session.history() == reference.history()
    points = [
        (f'{row["phase"]}/{name}', row['step'], pytest.approx(value))
        for row in session.history()
        for name, value in row.items()
        if name not in ('phase', 'step') and value is not None
    ]
    told = [event for event in session.events() if event[0] != 'samples']
    assert sorted(told) == sorted(points)
    plans = [(s.workdir / 'plan.json').read_bytes() for s in (session, reference)]
    assert plans[0] == plans[1]
    keys = session.keys()
    assert keys.keys() == reference.keys().keys()
    assert all(len(values) == 1 for values in keys.values())
    noise = [next(iter(v)) for (name, _), v in keys.items() if name.startswith('noise')]
    assert len(set(noise)) == len(noise) > 0
    assert not (session.workdir / 'private' / 'entropy').exists()


@pytest.mark.slow
def test_kills_in_both_phases_change_no_bit(session, whole):
    run = session('canonical')
    first = run.process(TERM, 'classifier', 4)
    assert first.returncode == 143
    assert first.stderr.endswith(  # a busy machine says that it searches the noise
        'SIGTERM: stopped at classifier step 4 of 8 and saved. '
        'Run the same command to go on.\n'
    )
    assert run.saved('classifier') == [4]
    # Saves every window: what kill -9 loses is the window at hand.
    second = run.process(KILL, 'gan', 4, seconds=0.0)
    assert second.returncode == -KILL
    assert run.saved('gan') == [2]
    assert not (run.workdir / 'release').exists()
    run.done()
    assert_same(run, whole('canonical'))


@pytest.mark.slow
def test_kills_the_other_way_round_change_no_bit(session, whole):
    run = session('canonical')
    assert run.process(KILL, 'classifier', 6, seconds=0.0).returncode == -KILL
    assert run.saved('classifier') == [4, 5]
    second = run.process(TERM, 'gan', 2)
    assert second.returncode == 143 and 'stopped at gan step 2 of 8' in second.stderr
    run.done()
    assert_same(run, whole('canonical'))


@pytest.mark.slow
@pytest.mark.parametrize(
    ('number', 'phase', 'step'),
    [(KILL, 'classifier', 4), (KILL, 'gan', 6), (TERM, 'classifier', 8), (TERM, 'gan', 8)],
)  # fmt: skip
def test_a_kill_before_any_save_or_at_the_end_of_a_phase(
    session, whole, number, phase, step
):
    run = session('canonical')
    assert run.process(number, phase, step).returncode in (143, -KILL)
    run.done()
    assert_same(run, whole('canonical'))


@pytest.mark.parametrize('stops', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_kills_after_the_one_release_change_no_bit(session, whole, stops):
    """Nor does anything of a lost trajectory stay, in TensorBoard's files either."""
    run = session('one_shot')
    if stops:
        assert run.process(TERM, 'gan', 20).returncode == 143
    assert run.process(KILL, 'gan', 40, seconds=0.0).returncode == -KILL
    saved = run.saved('gan')[-1]
    with SummaryWriter(str(run.workdir / 'tensorboard' / 'gan')) as flushed:
        flushed.add_scalar('gan/loss_match', 123.0, saved + 1)
    assert ('gan/loss_match', saved + 1, 123.0) in run.events()
    run.done()
    assert_same(run, whole('one_shot'))
    pictures = [step for name, step, _ in run.events() if name == 'samples']
    assert pictures[0] == saved and pictures[-1] == 60


@pytest.mark.slow
def test_after_a_kill_another_instruction_set_is_refused(session, whole):
    """An older processor rounds otherwise: one noise would lie over two queries."""
    run = session('one_shot')
    assert run.process(KILL, 'gan', 40).returncode == -KILL
    older = run.process(flags='--xla_cpu_max_isa=SSE4_2')
    assert older.returncode != 0 and 'XLA_FLAGS (was ' in older.stderr
    assert not (run.workdir / 'release').exists()
    run.done()
    assert_same(run, whole('one_shot'))


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['canonical', 'one_shot'])
def test_a_run_repeats_its_own_bits(session, whole, kind):
    run = session(kind)
    process = run.process()
    assert process.returncode == 0, process.stderr
    assert_same(run, whole(kind))


def test_a_finished_run_is_not_trained_again(whole):
    run = whole('one_shot')
    before = tiny_runs.contents(run.workdir)
    run.done()
    assert tiny_runs.contents(run.workdir) == before


class TestSignals:
    def test_outside_training_one_ends_the_run_at_once(self):
        code = (
            'import os, signal, time\n'
            'from dpaf_jax.training.signals import Interrupted, StopRequest\n'
            'stop = StopRequest()\n'
            'stop.listen()\n'
            'stop.check("prepare")\n'
            'try:\n'
            '    os.kill(os.getpid(), signal.SIGTERM)\n'
            '    time.sleep(5)\n'
            'except Interrupted as notice:\n'
            '    print(notice)\n'
        )
        done = tiny_runs.run_python('-c', code)
        assert (done.returncode, done.stderr) == (0, '')
        assert done.stdout == (
            'SIGTERM: stopped in prepare. Run the same command to go on.\n'
        )

    def test_one_that_comes_while_a_callback_runs_is_not_lost(self):
        code = (
            'import gc, os, signal, time\n'
            'from dpaf_jax.training.signals import Interrupted, StopRequest\n'
            'stop = StopRequest()\n'
            'stop.listen()\n'
            'stop.check("prepare")\n'
            'def callback(phase, info):\n'
            '    gc.callbacks.clear()\n'
            '    os.kill(os.getpid(), signal.SIGINT)\n'
            '    time.sleep(0.01)\n'
            'gc.callbacks.append(callback)\n'
            'try:\n'
            '    gc.collect()\n'
            '    time.sleep(5)\n'
            'except Interrupted as notice:\n'
            '    print(notice)\n'
        )
        done = tiny_runs.run_python('-c', code)
        assert done.stdout == (
            'SIGINT: stopped in prepare. Run the same command to go on.\n'
        )
        assert done.returncode == 0 and 'Traceback' not in done.stderr

    def test_a_terminal_that_closes_lets_the_run_save(self, tmp_path):
        """Its lines have nowhere to go then, which must not stop it before it has saved."""
        script = (
            'import pathlib, sys, time\n'
            'from dpaf_jax.training.signals import StopRequest\n'
            'stop = StopRequest()\n'
            'stop.listen()\n'
            'with stop.deferred():\n'
            '    stop.unsaved = True\n'
            '    while not stop.signal_number:\n'
            '        print("step", flush=True)\n'
            '        time.sleep(0.05)\n'
            '    print("one more", flush=True)\n'
            '    pathlib.Path(sys.argv[1]).write_text(str(stop.signal_number))\n'
        )
        master, terminal = os.openpty()
        process = subprocess.Popen(
            [sys.executable, '-c', script, str(tmp_path / 'saved')],
            stdout=terminal,
            stderr=terminal,
            env=os.environ | {'PYTHONPATH': str(tiny_runs.ROOT)},
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        os.close(terminal)
        assert b'step' in os.read(master, 100)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)  # it is heard before a line is lost, or the line is an error
        os.close(master)
        assert process.wait(timeout=60) == 0
        assert (tmp_path / 'saved').read_text() == str(int(signal.SIGHUP))

    def test_what_nohup_ignores_stays_ignored(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        heard = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            StopRequest().listen()
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in {**heard, signal.SIGHUP: before}.items():
                signal.signal(number, handler)

    def test_inside_it_is_noted_and_a_second_one_changes_nothing(self):
        stop = StopRequest()
        with stop.deferred():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                stop._note(number, None)
            assert stop.signal_number == signal.SIGTERM
        with pytest.raises(Interrupted, match='SIGTERM: stopped in samples'):
            stop.check('samples')

    @pytest.mark.parametrize('unsaved', [True, False])
    def test_the_keyboard_is_answered_at_once_while_compiled_code_runs(self, unsaved):
        code = (
            'import hashlib\n'
            'from dpaf_jax.training.signals import StopRequest\n'
            'stop = StopRequest()\n'
            'stop.listen()\n'
            'with stop.deferred():\n'
            f'    stop.unsaved = {unsaved}\n'
            '    print("ready", flush=True)\n'
            '    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)\n'  # ten minutes
        )
        with subprocess.Popen(
            [sys.executable, '-c', code],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {'PYTHONPATH': str(tiny_runs.ROOT)},
        ) as process:  # fmt: skip
            assert process.stdout.readline() == 'ready\n'
            process.send_signal(signal.SIGINT)
            lines = [process.stderr.readline() for _ in range(2)]
            if unsaved:
                assert lines[1] == 'stopping after this step, again to abort\n'
                process.send_signal(signal.SIGINT)
                assert 'SIGINT: aborted.' in process.communicate(timeout=60)[1]
            else:
                assert lines[1].startswith('SIGINT: stopped, nothing was to be saved.')
            assert process.wait(timeout=60) == 130

    def test_ctrl_c_from_python_saves_and_the_same_call_goes_on(self, tmp_path):
        config = tiny_runs.begun(tmp_path / 'run')
        pipeline, update = Pipeline(config, tmp_path / 'run'), Progress.update
        before = signal.getsignal(signal.SIGINT)

        def interrupt(progress, at, metrics):
            update(progress, at, metrics)
            if at == 2:
                os.kill(os.getpid(), signal.SIGINT)

        with (
            mock.patch.object(Progress, 'update', interrupt),
            pytest.raises(
                KeyboardInterrupt, match='stopped at gan step [23] of 4 and saved'
            ),
        ):
            pipeline.run('train')
        assert signal.getsignal(signal.SIGINT) is before
        pipeline.run('train')
        pipeline.run('release')
        assert pipeline.workdir.release.exists()

    def test_a_pass_over_all_records_is_left_with_the_state_before_it(self, tmp_path):
        config = tiny_runs.begun(tmp_path / 'run')
        stop = StopRequest()
        pipeline = Pipeline(config, tmp_path / 'run', stop=stop)
        window = OneShotPhase.window

        def leave(phase, state, step):
            stop.signal_number = signal.SIGINT
            stop.check_within_window()
            return window(phase, state, step)

        before = tiny_runs.contents(tmp_path / 'run' / 'checkpoints')
        with (
            mock.patch.object(OneShotPhase, 'window', leave),
            pytest.raises(
                Interrupted, match=r'stopped at gan step \d of 4 and saved'
            ) as left,
        ):
            pipeline.run('train')
        assert left.value.status == 130
        after = tiny_runs.contents(tmp_path / 'run' / 'checkpoints')
        assert before.keys() == after.keys()

    def test_a_first_window_that_is_killed_leaves_the_stop_before_it(self, tmp_path):
        """Nothing has left the process: the run may still move to another machine."""
        config = tiny_runs.begun(tmp_path / 'run')
        stopped = tmp_path / 'run' / 'checkpoints' / 'stopped.json'
        seen, window = [], OneShotPhase.window

        def noted(phase, state, step):
            seen.append(stopped.exists())
            if len(seen) > 1:
                raise MemoryError
            return window(phase, state, step)

        with (
            mock.patch.object(OneShotPhase, 'window', noted),
            pytest.raises(MemoryError),
        ):
            Pipeline(config, tmp_path / 'run').run('train')
        assert seen == [True, False] and not stopped.exists()

    @pytest.mark.parametrize(
        'repeats', [pytest.param(True, marks=pytest.mark.slow), False]
    )
    def test_where_bits_may_differ_nothing_is_told_before_it_is_saved(
        self, tmp_path, repeats
    ):
        """A kill loses steps; on a GPU they may have other bits under the same noise."""
        config = tiny_runs.begun(tmp_path / 'run')
        history, window = History(tmp_path / 'run'), OneShotPhase.window
        before, calls = history.rows(), []

        def killed(phase, state, step):
            calls.append(step)
            if len(calls) > 1:
                raise MemoryError
            return window(phase, state, step)

        with (
            mock.patch.object(Run, 'repeats_bits', repeats),
            mock.patch.object(OneShotPhase, 'window', killed),
            pytest.raises(MemoryError),
        ):
            Pipeline(config, tmp_path / 'run').run('train')
        told = [row['step'] for row in history.rows() if row not in before]
        assert told == (calls[1:] if repeats else [])
        with mock.patch.object(Run, 'repeats_bits', repeats):
            Pipeline(config, tmp_path / 'run').run('train')
        assert history.rows()[-1]['step'] == 4

    def test_whitening_that_is_left_behind_a_release_leaves_the_state_before_it(
        self, tmp_path
    ):
        fields = {
            **tiny.ONE_SHOT,
            'dpaf__epochs': 2.0,
            'dpaf__generator__whitenings': 1,
            'dpaf__generator__whiten_below': 0.0,
        }
        config = tiny.config(**fields)
        run = tiny.run(tmp_path, config, 1)
        measured = Whitening.measured

        def leave(whitening, state, part):
            run.stop.signal_number = signal.SIGTERM
            return measured(whitening, state, part)

        with (
            mock.patch.object(Whitening, 'measured', leave),
            pytest.raises(
                Interrupted, match=r'stopped at gan step \d+ of \d+ and saved'
            ),
        ):
            dpaf.train(run)
        assert (tmp_path / 'checkpoints' / 'stopped.json').exists()

    def test_training_is_left_at_a_stop_that_came_with_the_last_step(self, tmp_path):
        config = tiny_runs.begun(tmp_path / 'run')
        stop = StopRequest()
        pipeline = Pipeline(config, tmp_path / 'run', stop=stop)
        with tiny_runs.stop_at(stop, 'gan', 4), pytest.raises(Interrupted):
            pipeline.run('train')
        assert (tmp_path / 'run' / 'checkpoints' / 'gan' / '4').is_dir()
