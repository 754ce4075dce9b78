"""The launch scripts, run against stand-ins for Python, gcloud, kubectl and SLURM."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dpaf_jax.runtime.processes import parse

LAUNCH = Path(__file__).parents[2] / 'launch'
SCRIPTS = sorted([*LAUNCH.glob('*.sh'), *LAUNCH.glob('*.sbatch')])
RUN = ['--config=configs/mnist.py', '--workdir=runs/mnist', '--config.data.source=a b']
FRONT_ENDS = {
    'gpu_box.sh': [],
    'slurm.sbatch': [],
    'jobset.sh': ['--image=example/dpaf:1'],
    'tpu_pod.sh': ['--tpu=box', '--zone=europe-west4-a'],
}


def _heed_signals() -> None:
    """As from a terminal, also where the tests run in the background or under nohup."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class Cluster:
    """A folder with `launch/`, and stand-ins first on the PATH that log their calls."""

    def __init__(self, root: Path):
        self.root = root
        (root / 'launch').symlink_to(LAUNCH)
        (root / 'bin').mkdir()
        self.environment = os.environ | {
            'PATH': f'{root / "bin"}{os.pathsep}{os.environ["PATH"]}',
            'RESTART_SECONDS': '0',
            'SLURM_JOB_ID': '7',
        }
        for name in ('PYTHON', 'DPAF_LOG', 'JAX_PLATFORMS', 'MAX_RESTARTS'):
            self.environment.pop(name, None)
        self.started: list[subprocess.Popen] = []

    def stand_in(self, name: str, body: str = '') -> None:
        log = shlex.quote(str(self.root / f'{name}.calls'))
        path = self.root / 'bin' / name
        path.write_text(
            f'#!/usr/bin/env bash\n{{ printf "%q " "$@"; echo; }} >>{log}\n'
        )
        with path.open('a') as file:
            file.write(body)
        path.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        path = self.root / f'{name}.calls'
        lines = path.read_text().splitlines() if path.exists() else []
        return [shlex.split(line) for line in lines]

    def start(self, script: str, *arguments: str) -> subprocess.Popen:
        process = subprocess.Popen(
            ['bash', f'launch/{script}', *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_heed_signals,
        )
        self.started.append(process)
        return process

    def run(self, script: str, *arguments: str) -> tuple[int, str]:
        process = self.start(script, *arguments)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def stop_all(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    for name in ('python3', 'gcloud', 'kubectl', 'scontrol'):
        cluster.stand_in(name)
    cluster.stand_in('git')
    yield cluster
    cluster.stop_all()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f'{path.name} did not appear'
        time.sleep(0.02)


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.name)
def test_script_is_valid_bash(script):
    subprocess.run(['bash', '-n', script], check=True)


@pytest.mark.parametrize('path', sorted(LAUNCH.iterdir()), ids=lambda path: path.name)
def test_no_path_of_a_user_is_written_down(path):
    assert not re.search(r'/home/|/Users/|/root\b|~/', path.read_text())


@pytest.mark.parametrize('script', FRONT_ENDS)
def test_dry_run_prints_the_command_plans_and_starts_nothing(cluster, script):
    status, output = cluster.run(script, '--dry-run', *FRONT_ENDS[script], *RUN)
    assert status == 0, output
    [plan] = cluster.calls('python3')
    assert plan[:3] == ['-m', 'dpaf_jax.main', '--config=configs/mnist.py']
    assert plan[-2:] == ['--config.data.source=a b', '--stage=plan']
    assert '--dry-run' not in plan
    assert '-m dpaf_jax.main --config=configs/mnist.py --workdir=' in output
    for tool in ('gcloud', 'kubectl', 'scontrol'):
        assert cluster.calls(tool) == []


@pytest.mark.parametrize('script', FRONT_ENDS)
def test_dry_run_fails_where_the_plan_fails(cluster, script):
    cluster.stand_in('python3', 'echo no such field; exit 1\n')
    status, output = cluster.run(script, '--dry-run', *FRONT_ENDS[script], *RUN)
    assert status == 1
    assert 'no such field' in output


@pytest.mark.parametrize('script', ['gpu_box.sh', 'jobset.sh', 'tpu_pod.sh'])
def test_missing_arguments_are_named(cluster, script):
    status, output = cluster.run(script)
    assert status == 2
    assert 'usage' in output


def test_a_config_is_asked_for_before_a_pod_is_touched(cluster):
    status, output = cluster.run(
        'tpu_pod.sh', '--tpu=box', '--zone=zone-a', '--workdir=gs://x/y'
    )
    assert status == 2 and 'usage' in output


def test_dry_run_prints_what_is_submitted_to_slurm(cluster):
    _, output = cluster.run('slurm.sbatch', '--dry-run', *RUN)
    line = next(x for x in output.splitlines() if x.startswith('would submit: '))
    assert shlex.split(line)[2:] == ['sbatch', 'launch/slurm.sbatch', *RUN]


def test_run_ended_by_a_signal_is_started_again_and_logged(cluster):
    # Pre-empted, then killed, then done.
    cluster.stand_in(
        'python3',
        'echo step; case $(wc -l <python3.calls) in 1) exit 143;; 2) exit 137;; esac\n',
    )
    status, output = cluster.run('gpu_box.sh', *RUN)
    assert status == 0
    assert cluster.calls('python3') == [['-m', 'dpaf_jax.main', *RUN]] * 3
    assert output.count('step\n') == 3
    assert (cluster.root / 'runs' / 'mnist.log').read_text() == output


def test_error_of_the_run_is_final(cluster):
    cluster.stand_in('python3', 'exit 1\n')
    status, _ = cluster.run('gpu_box.sh', *RUN)
    assert status == 1
    assert len(cluster.calls('python3')) == 1


def test_restarts_are_limited(cluster):
    cluster.stand_in('python3', 'exit 143\n')
    cluster.environment['MAX_RESTARTS'] = '2'
    status, _ = cluster.run('gpu_box.sh', *RUN)
    assert status == 143
    assert len(cluster.calls('python3')) == 3


# Stands for a run: on TERM it takes a moment to save, then exits as main does.
SAVES = """
trap 'sleep 0.2; touch saved; exit 143' TERM
touch up
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize('sent', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop_lets_the_run_save_and_is_not_followed_by_a_restart(cluster, sent):
    cluster.stand_in('python3', SAVES)
    process = cluster.start('gpu_box.sh', *RUN)
    wait_for(cluster.root / 'up')
    process.send_signal(sent)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 143
    assert (cluster.root / 'saved').exists()
    assert output.count('launch: start') == 1


@pytest.mark.parametrize('sent', [signal.SIGTERM, signal.SIGHUP])
def test_run_and_log_survive_a_signal_to_all_processes(cluster, sent):
    cluster.stand_in('python3', SAVES.replace('exit', 'echo saved; exit'))
    process = cluster.start('gpu_box.sh', *RUN)
    wait_for(cluster.root / 'up')
    os.killpg(process.pid, sent)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 143
    assert 'saved\n' in output
    log = cluster.root / 'runs' / 'mnist.log'
    assert log.read_text() == output and not log.stat().st_mode & 0o077


@pytest.mark.parametrize(
    ('sent', 'requeued'),
    [
        (signal.SIGUSR1, [['requeue', '7']]),  # the time limit is near
        (signal.SIGTERM, []),  # pre-empted (SLURM requeues by itself) or cancelled
    ],
)
def test_slurm_job_saves_and_is_requeued_at_the_time_limit_only(
    cluster, sent, requeued
):
    cluster.stand_in('python3', SAVES)
    process = cluster.start('slurm.sbatch', *RUN)
    wait_for(cluster.root / 'up')
    process.send_signal(sent)
    process.communicate(timeout=300)
    assert process.returncode == 143
    assert (cluster.root / 'saved').exists()
    assert cluster.calls('scontrol') == requeued


def test_slurm_job_that_is_done_is_not_requeued(cluster):
    status, _ = cluster.run('slurm.sbatch', *RUN)
    assert status == 0
    assert cluster.calls('scontrol') == []


def test_slurm_directives():
    text = (LAUNCH / 'slurm.sbatch').read_text()
    directives = re.findall(r'^#SBATCH --(.*)$', text, re.MULTILINE)
    assert {'nodes=1', 'requeue', 'open-mode=append'} <= set(directives)
    assert any(x.startswith('signal=B:USR1@') for x in directives)
    # sbatch ignores directives behind the first command.
    assert text.rindex('#SBATCH') < text.index('\nset ')


def job(manifest: dict) -> dict:
    assert manifest['apiVersion'] == 'jobset.x-k8s.io/v1alpha2'
    assert manifest['kind'] == 'JobSet'
    [replicated] = manifest['spec']['replicatedJobs']
    assert replicated['replicas'] == 1
    return replicated['template']['spec']


def test_jobset_restarts_what_was_pre_empted_and_not_what_failed():
    spec = job(yaml.safe_load((LAUNCH / 'jobset.yaml').read_text()))
    assert spec['parallelism'] == spec['completions'] == '@PODS@'
    pod = spec['template']['spec']
    # Kubernetes takes a podFailurePolicy only with this restart policy.
    assert pod['restartPolicy'] == 'Never'
    assert pod['terminationGracePeriodSeconds'] >= 60
    actions = {}
    for rule in spec['podFailurePolicy']['rules']:
        if 'onExitCodes' in rule and rule['onExitCodes']['operator'] == 'In':
            actions |= dict.fromkeys(rule['onExitCodes']['values'], rule['action'])
    assert actions == {143: 'Ignore'} | dict.fromkeys((134, 137, 139, 144), 'Count')
    final = spec['podFailurePolicy']['rules'][-1]
    assert final['action'] == 'FailJob'
    assert set(final['onExitCodes']['values']) == set(actions)
    # What one pod's loss does to the others is not counted against it.
    assert spec['backoffLimitPerIndex'] > 0 and 'backoffLimit' not in spec
    assert pod['securityContext']['runAsNonRoot']
    [container] = pod['containers']
    # That one has programs of any node, which round as it does.
    assert 'JAX_COMPILATION_CACHE_DIR' not in {v['name'] for v in container['env']}
    assert container['resources']['limits']['nvidia.com/gpu'] > 0
    mounted = {mount['name'] for mount in container['volumeMounts']}
    assert mounted == {volume['name'] for volume in pod['volumes']}


def test_jobset_is_submitted_with_image_and_arguments(cluster):
    cluster.stand_in('kubectl', 'cat >manifest.yaml\n')
    arguments = [*RUN, '--config.note=say "a\\b" & {c: d}']
    status, output = cluster.run('jobset.sh', '--image=example/dpaf:1', *arguments)
    assert status == 0, output
    assert cluster.calls('kubectl') == [['apply', '--filename=-']]
    manifest = yaml.safe_load((cluster.root / 'manifest.yaml').read_text())
    [container] = job(manifest)['template']['spec']['containers']
    assert container['image'] == 'example/dpaf:1'
    assert container['command'] == ['python', '-m', 'dpaf_jax.main']
    assert container['args'] == arguments
    assert job(manifest)['parallelism'] == job(manifest)['completions'] == 1


def test_every_host_of_a_tpu_slice_is_given_the_code_and_starts_the_run(cluster):
    status, output = cluster.run('tpu_pod.sh', '--tpu=box', '--zone=zone-a', *RUN)
    assert status == 0, output
    [archive] = cluster.calls('git')
    assert archive[-1] == 'HEAD'
    copy, install, start = cluster.calls('gcloud')
    for call in (copy, install, start):
        assert call[:3] == ['compute', 'tpus', 'tpu-vm']
        assert {'--zone=zone-a', '--worker=all'} <= set(call)
    assert copy[3] == 'scp' and copy[4].endswith('dpaf_jax.tar') and copy[5] == 'box:'
    assert 'tar -xmf dpaf_jax.tar' in install[-1]  # newer than what is installed
    assert 'make install EXTRAS=tpu' in install[-1]
    remote = start[-1].removeprefix('--command=')
    subprocess.run(['bash', '-n', '-c', remote], check=True)
    words = shlex.split(remote)
    at = words.index('launch/supervise.sh')
    assert words[at + 1 : at + 5] == [*RUN, '--cluster=auto']
    assert 'DPAF_LOG=runs/mnist.$HOSTNAME.log' in words
    assert 'tail -F runs/mnist.$HOSTNAME.log' in output


def test_a_workdir_at_home_is_no_folder_of_that_name(cluster):
    cluster.environment['HOME'] = str(cluster.root / 'home')
    arguments = [RUN[0], '--workdir=~/runs/mnist']
    assert cluster.run('supervise.sh', *arguments)[0] == 0
    assert (cluster.root / 'home' / 'runs' / 'mnist.log').is_file()
    assert not (cluster.root / '~').exists()
    cluster.run('tpu_pod.sh', '--tpu=box', '--zone=zone-a', *arguments)
    start = cluster.calls('gcloud')[-1][-1]
    assert 'DPAF_LOG=~/runs/mnist.$HOSTNAME.log' in start


def test_tables_run_on_the_python_that_is_named(cluster):
    cluster.stand_in('mypython')
    cluster.environment['PYTHON'] = 'mypython'
    assert cluster.run('tables.sbatch', '--table=dpaf/1')[0] == 0
    assert cluster.calls('mypython') and not cluster.calls('python3')


ONCE_LOST = """
if [[ $1 == --help ]]; then echo '--ignore-signals=...'; exit; fi
[[ $(wc -l <srun.calls) -gt 2 ]] || exit 144
"${@:5}"
"""


def test_slurm_on_several_nodes_is_one_run_that_starts_again_as_a_whole(cluster):
    cluster.stand_in('srun', 'echo "$JAX_LOCAL_DEVICE_IDS" >ids\n' + ONCE_LOST)
    cluster.environment |= {'SLURM_JOB_NUM_NODES': '2', 'SLURM_GPUS_ON_NODE': '4'}
    status, output = cluster.run('slurm.sbatch', *RUN)
    assert status == 0, output
    _, first, second = cluster.calls('srun')
    assert first == second and '--ignore-signals=TERM' in first
    assert first[-len(RUN) - 1 :] == [*RUN, '--cluster=auto']
    assert cluster.calls('python3') == [['-m', 'dpaf_jax.main', *RUN, '--cluster=auto']]
    assert (cluster.root / 'ids').read_text() == '0,1,2,3\n'


# A TERM makes srun kill its tasks; Slurm can tell them.
KILLS = """
trap 'exit 137' TERM
touch up
while [[ ! -e told ]]; do sleep 0.05; done
touch saved
exit 143
"""


def test_a_stop_goes_around_srun_and_lets_all_nodes_save(cluster):
    cluster.stand_in('srun', f'if [[ $1 == --help ]]; then exit; fi\n{KILLS}')
    cluster.stand_in('scancel', 'touch told\n')
    cluster.environment |= {'SLURM_JOB_NUM_NODES': '2', 'SLURM_GPUS_ON_NODE': '4'}
    process = cluster.start('slurm.sbatch', *RUN)
    wait_for(cluster.root / 'up')
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=300)
    assert process.returncode == 143 and (cluster.root / 'saved').exists()
    assert cluster.calls('scancel')[0] == ['--quiet', '--signal=TERM', '7']
    assert cluster.calls('scontrol') == [['requeue', '7']]
    asked, started = cluster.calls('srun')
    assert asked == ['--help'] and '--ntasks-per-node=1' in started


def test_slurm_array_has_a_run_for_each_index(cluster):
    cluster.environment['SLURM_ARRAY_TASK_ID'] = '3'
    arguments = [*RUN[:1], '--workdir=runs/%a', '--config.privacy.epsilon=%a']
    assert cluster.run('slurm.sbatch', *arguments)[0] == 0
    expected = [*RUN[:1], '--workdir=runs/3', '--config.privacy.epsilon=3']
    assert cluster.calls('python3') == [['-m', 'dpaf_jax.main', *expected]]


def test_jobset_of_several_pods_is_one_run(cluster):
    cluster.stand_in('kubectl', 'cat >manifest.yaml\n')
    status, output = cluster.run(
        'jobset.sh', '--image=example/dpaf:1', '--pods=3', *RUN
    )
    assert status == 0, output
    manifest = yaml.safe_load((cluster.root / 'manifest.yaml').read_text())
    spec = job(manifest)
    assert (spec['parallelism'], spec['completions']) == (3, 3)
    assert spec['completionMode'] == 'Indexed'
    [container] = spec['template']['spec']['containers']
    *arguments, last = container['args']
    assert arguments == RUN
    # The name that a JobSet gives its first pod.
    [replicated] = manifest['spec']['replicatedJobs']
    name = manifest['metadata']['name']
    host = f'{name}-{replicated["name"]}-0-0.{name}'
    assert last == f'--cluster={host}:4321,$(JOB_COMPLETION_INDEX),3'
    parse(last.removeprefix('--cluster=').replace('$(JOB_COMPLETION_INDEX)', '2'))


@pytest.mark.parametrize(
    'script',
    [
        pytest.param(s, marks=[pytest.mark.slow] * (i > 0))
        for i, s in enumerate(FRONT_ENDS)
    ],
)
def test_dry_run_checks_the_config_for_real(cluster, script):
    """With the real planner: what the config gets wrong is said before anything starts."""
    cluster.environment |= {
        'PYTHON': sys.executable,
        'PYTHONPATH': str(LAUNCH.parent),
        'JAX_PLATFORMS': 'cpu',
    }
    config = LAUNCH.parent / 'configs' / 'mnist.py'
    bad = [f'--config={config}', '--workdir=runs/x', '--config.privacy.epsilon=-1']
    status, output = cluster.run(script, '--dry-run', *FRONT_ENDS[script], *bad)
    assert status == 2
    assert 'error: config.privacy.epsilon: is -1' in output
    assert not (cluster.root / 'runs' / 'x' / 'plan.json').exists()


@pytest.mark.skipif(
    not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
@pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script):
    subprocess.run(['shellcheck', '--shell=bash', str(script)], check=True)
