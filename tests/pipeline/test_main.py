"""The command as a user runs it: a process of its own, flags, messages, exit status."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tiny_runs

from dpaf_jax.pipeline.summary import summary
from dpaf_jax.training.workdir import Workdir

MAIN = ('-m', 'dpaf_jax.main')
CONFIG = tiny_runs.ROOT / 'configs' / 'digits.py'
# Leaves, in this order: what main printed, and whether JAX has looked for devices.
PLAN = """
import sys
from dpaf_jax import main
try:
    main.run()
except SystemExit as exit_:
    assert not exit_.code, exit_.code
import jax._src.xla_bridge as bridge
print('devices looked for:', bridge.backends_are_initialized())
"""

# Makes the package importable, and not what lies beside it, as installing it does.
INSTALLED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location('dpaf_jax', '{package}/__init__.py')
sys.modules['dpaf_jax'] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules['dpaf_jax'])
"""


def flags(source: str, **changes) -> list[str]:
    config = tiny_runs.one_shot(source, **changes)
    return tiny_runs.flags_of(config, tiny_runs.load_config('digits'))


def test_an_output_that_nobody_reads_is_no_fault_of_the_workdir(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    config = f'--config={tiny_runs.ROOT / "configs" / "dp_merf.py"}:digits,3'
    command = [
        sys.executable,
        *MAIN,
        config,
        f'--workdir={tmp_path / "a"}',
        '--stage=plan',
    ]
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=tiny_runs.ROOT
    )
    os.close(writing)
    told = 'the output was cut off: run the same command to go on\n'
    assert (done.returncode, done.stderr) == (141, told)


def test_help_teaches(tmp_path):
    done = tiny_runs.run_python(*MAIN, '--help', cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, '')
    for word in (
        'python -m dpaf_jax.main --config=configs/recommended.py:digits --workdir=runs/digits',
        '--config.privacy.epsilon=1',
        '--stage=plan',
        'resumes an interrupted run, or says that it is done',
        'all, or one of prepare, plan, train,',
        '  --config: A config file',
        'configs/recommended.py:digits,1',
    ):
        assert word in done.stdout


def test_a_run_ends_with_the_check_spelled_as_the_run_was_started(monkeypatch):
    folder = tiny_runs.finished('one_shot').workdir
    for started, check in {
        'dpaf-jax synthesize': f'dpaf-jax verify {folder}',
        '/x/dpaf_jax/main.py': f'python -m dpaf_jax.verify --release={folder}/release',
    }.items():
        monkeypatch.setattr(sys, 'argv', [started])
        assert summary(Workdir(folder)).endswith(check)


def test_one_process_may_import_every_command():
    done = tiny_runs.run_python(
        '-c', 'from dpaf_jax import attack, audit, main, sample, verify'
    )
    assert (done.returncode, done.stderr) == (0, '')


def test_the_plan_touches_neither_image_nor_accelerator(tmp_path):
    done = tiny_runs.run_python(
        *(
            '-c',
            PLAN,
            '--config=../configs/mnist.py:one_shot',
            f'--workdir={tmp_path}/run',
        ),
        *('--stage=plan', '--config.data.source=npz:/no/such.npz'),
        '--config.privacy.epsilon=4',
        cwd=tiny_runs.ROOT / 'docs',
    )
    # A busy machine says that it searches.
    slow = 'Looking for the least noise with which dpagg has epsilon 4.\n'
    assert done.returncode == 0 and done.stderr in ('', slow)
    head, row, total, guarantee, expect, *_, devices = done.stdout.splitlines()
    assert expect.startswith('60000 pictures of 10 classes at ε = 4. No forecast for')
    assert head.split() == ['mechanism', 'sigma', 'q', 'steps', 'sensitivity']
    name, sigma, prob, steps, sensitivity = row.split()[:5]
    plan = json.loads((tmp_path / 'run' / 'plan.json').read_text())
    (made,) = plan['mechanisms']
    assert (name, float(sigma)) == ('dpagg', made['noise_multiplier'])
    assert (float(prob), int(steps), float(sensitivity)) == (1, 1, 1)
    assert f'epsilon {plan["epsilon"]} (PLD), {plan["epsilon_rdp"]} (RDP)' in total
    assert 3.9 < plan['epsilon'] <= 4 < plan['epsilon_rdp']
    assert guarantee == 'guarantee: certified'
    assert devices == 'devices looked for: False'
    assert {path.name for path in (tmp_path / 'run').iterdir()} == {
        'plan.json', 'private', 'stages.json',
    }  # fmt: skip


def from_elsewhere(folder):
    """One command at epsilon 2, for a run in runs/a: its other flags, and what it told."""
    source = tiny_runs.write_npz(folder / 'images.npz')
    never = {'dpaf__generator__whitenings': 1, 'dpaf__generator__whiten_below': 1e-6}
    given = [f'--config={CONFIG}', '--workdir=runs/a', *flags(source, **never)]
    done = tiny_runs.run_python(*MAIN, *given, '--config.privacy.epsilon=2', cwd=folder)
    assert done.returncode == 0
    return given, done


@pytest.fixture
def whole():
    """The folder of a whole run, and what it told; for looking only."""
    folder, (_, done) = tiny_runs.once('from elsewhere', from_elsewhere)
    return folder / 'runs' / 'a', done


@pytest.fixture
def again(tmp_path, monkeypatch):
    """The same command once more at an epsilon, beside a copy of the run."""
    folder, (given, _) = tiny_runs.once('from elsewhere', from_elsewhere)
    shutil.copytree(folder / 'runs', tmp_path / 'runs')
    monkeypatch.chdir(tmp_path)
    return lambda epsilon, *more: tiny_runs.call_main(
        *given, f'--config.privacy.epsilon={epsilon}', *more
    )


DONE_ALREADY = 'runs/a: done already; see runs/a/release\n'


def test_a_whole_run_says_what_it_says_itself_and_nothing_of_its_libraries(whole):
    told = whole[1].stderr.splitlines()
    (said,) = (line for line in told if 'Compiled programs are kept in' not in line)
    assert 'Not whitened: the aggregates' in said


def test_a_whole_run_tells_of_epsilon_steps_figures_and_places(whole):
    out = whole[1].stdout
    assert re.search(r'epsilon (1\.9\d*|2\.0) \(PLD\)', out)
    assert re.search(r'^gan  step 2/2 · .*done in .* · ε 2 of 2$', out, re.M)
    for words in (
        'On real test data, not covered by ε:',
        'Small CNN ', 'Always the largest class (floor)  0.',
        'release, may be shared                  runs/a/release  (epsilon = ',
        'runs/a/samples/synthetic.npz', 'runs/a/report.html',
    ):  # fmt: skip
        assert words in out
    assert '±' not in out  # of one seed


def test_a_whole_run_leaves_release_and_report_and_no_entropy(whole):
    run, _ = whole
    release = {path.name for path in (run / 'release').iterdir()}
    assert 'generator.safetensors' in release and 'samples.png' in release
    report = json.loads((run / 'report.json').read_text())
    assert {'mean', 'std', 'values'} <= set(report['accuracy']['synthetic']['cnn'])
    assert (run / 'report.html').exists() and not (run / 'private' / 'entropy').exists()


def test_the_same_command_again_says_so_and_changes_nothing(again, tmp_path):
    before = tiny_runs.contents(tmp_path / 'runs' / 'a')
    outcome = again(2)
    assert (outcome.code, outcome.err, outcome.out) == (0, '', DONE_ALREADY)
    assert tiny_runs.contents(tmp_path / 'runs' / 'a') == before


def test_of_several_processes_the_first_does_what_is_left_of_a_trained_run(again):
    """Nobody is waited for: the others may have ended."""
    first, second = (again(2, f'--cluster=localhost:1,{i},2') for i in (0, 1))
    assert (first.code, first.err, first.out) == (0, '', DONE_ALREADY)
    assert (second.code, second.err, second.out) == (0, '', '')


def test_another_epsilon_in_the_same_folder_is_refused(again):
    other = again(3)
    assert (other.code, other.out) == (2, '')
    assert other.err == (
        'error: --workdir: runs/a belongs to a run with another config: '
        'privacy.epsilon (was 2.0, now 3.0). Give the old config; or a new workdir, which '
        'spends epsilon anew: of both together the sum is promised.\n'
    )


def test_the_fingerprint_says_as_much_and_so_does_a_release(again, tmp_path):
    run = tmp_path / 'runs' / 'a'
    for gone in (run / 'private' / 'config.json', run / 'private' / 'fingerprint.json'):
        gone.unlink()
        other = again(3)
        assert other.code == 2 and 'privacy.epsilon (was 2.0, now 3.0)' in other.err
        same = again(2)
        assert (same.err, same.out) == ('', DONE_ALREADY)
    (run / 'release' / 'privacy.json').unlink()
    lacking = again(2)
    assert lacking.code == 2 and 'done already' not in lacking.out


@pytest.mark.slow
def test_each_stage_alone_in_order(tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    command = [f'--config={CONFIG}', f'--workdir={tmp_path}/run', *flags(source)]
    leaves = {
        'prepare': 'private/data/manifest.json',
        'plan': 'plan.json',
        'train': 'checkpoints/gan',
        'release': 'release/privacy.json',
        'samples': 'samples/synthetic.npz',
        'evaluate': 'evaluation.json',
        'report': 'report.html',
    }
    for stage, path in leaves.items():
        assert not (tmp_path / 'run' / path).exists()
        outcome = tiny_runs.call_main(*command, f'--stage={stage}')
        assert (outcome.code, outcome.err) == (0, '')
        assert (tmp_path / 'run' / path).exists()
    done = tiny_runs.call_main(*command)
    assert done.code == 0 and 'done already' in done.out


@pytest.mark.parametrize('form', ['--config={}', '-config={}', '--config {}'])
def test_a_config_is_found_from_anywhere_in_every_spelling(tmp_path, form, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (str(CONFIG), os.path.relpath(CONFIG)):
        outcome = tiny_runs.call_main(
            *form.format(path).split(), '--workdir=run', '--stage=plan'
        )
        assert (outcome.code, outcome.err) == (0, '')


def test_a_config_of_the_users_own_may_build_on_ours(tmp_path):
    (tmp_path / 'mine.py').write_text(
        'from configs import digits\n\n\n'
        'def get_config(epsilon="3"):\n'
        '    config = digits.get_config("one_shot")\n'
        '    config.privacy.epsilon = float(epsilon)\n'
        '    return config\n'
    )
    code = INSTALLED.format(package=str(tiny_runs.ROOT / 'dpaf_jax')) + PLAN
    done = tiny_runs.run_python(
        *('-c', code, '--config=mine.py:1.5', '--workdir=run', '--stage=plan'),
        cwd=tmp_path,
        environment={'PYTHONPATH': ''},
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r'epsilon 1\.(4\d*|5) \(PLD\)', done.stdout)


@pytest.mark.parametrize('names', [('default',), ('__init__', 'default', 'sources')])
def test_a_folder_configs_of_the_users_own_hides_none_of_ours(tmp_path, names):
    """Not even with a file of the same name, nor as a package: it comes behind ours."""
    theirs = tmp_path / 'configs'
    theirs.mkdir()
    for name in names:
        (theirs / f'{name}.py').write_text('def get_config():\n    return None\n')
    (theirs / 'more.py').write_text('EPSILON = 1.5\n')
    (theirs / 'mine.py').write_text(
        'from configs import default, digits, more\n\n\n'
        'def get_config():\n'
        '    assert default.get_config() is not None\n'
        '    config = digits.get_config("one_shot")\n'
        '    config.privacy.epsilon = more.EPSILON\n'
        '    return config\n'
    )
    code = INSTALLED.format(package=str(tiny_runs.ROOT / 'dpaf_jax')) + PLAN
    for config in ('configs/digits.py:one_shot', 'configs/mine.py'):
        done = tiny_runs.run_python(
            *('-c', code, f'--config={config}', '--workdir=run', '--stage=plan'),
            cwd=tmp_path,
            environment={'PYTHONPATH': str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
    assert re.search(r'epsilon 1\.(4\d*|5) \(PLD\)', done.stdout)


@pytest.mark.parametrize(
    'error',
    [
        RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore'),
        RuntimeError('INTERNAL: Out of memory allocating 9 bytes.\nmore'),
        MemoryError(),
    ],
)
def test_too_little_memory_is_one_line_with_a_remedy(tmp_path, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr('dpaf_jax.main._run_stages', fails)
    config = f'--config={tiny_runs.ROOT / "configs" / "digits.py"}'
    outcome = tiny_runs.call_main(config, f'--workdir={tmp_path}/run')
    (line,) = outcome.err.splitlines()
    assert outcome.code == 2
    assert line.startswith('error: there is too little memory (')
    assert 'Use more devices' in line


def wait_for(path: pathlib.Path, process: subprocess.Popen) -> None:
    for _ in range(6000):
        if path.exists() or process.poll() is not None:
            return
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_in_training_saves_says_so_and_exits(tmp_path, number):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    command = [
        *(sys.executable, *MAIN, f'--config={CONFIG}', f'--workdir={tmp_path}/run'),
        *flags(source, dpaf__generator_steps=200000, privacy__epsilon=2.0),
    ]
    environment = os.environ | {'PYTHONPATH': str(tiny_runs.ROOT)}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        wait_for(tmp_path / 'run' / 'history.jsonl', process)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    name = signal.Signals(number).name
    log, err = err.split('\n', 1)
    assert 'Compiled programs are kept in' in log
    if number == signal.SIGINT:
        assert err.startswith('\nstopping after this step, again to abort\n')
        err = err.split('abort\n')[1]
    match = re.fullmatch(
        rf'{name}: stopped at gan step (\d+) of 200000 and saved\. '
        r'Run the same command to go on\.\n',
        err,
    )
    assert match, err
    assert (tmp_path / 'run' / 'checkpoints' / 'gan' / match[1]).is_dir()
    rows = (tmp_path / 'run' / 'history.jsonl').read_text().splitlines()
    assert rows and all(json.loads(row)['step'] <= int(match[1]) for row in rows)
