"""What shapes a run, by name: the same names and values, the same bits."""

import dataclasses
import functools
import os
import shutil
from types import SimpleNamespace
from unittest import mock

import jax
import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax.config import METHOD_SECTIONS
from dpaf_jax.methods.dpaf.phase2.one_shot_phase import OneShotPhase
from dpaf_jax.pipeline.stages.prepare import private_data
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.runtime import gpu_compiler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json, write_json
from dpaf_jax.training import fingerprint, resume
from dpaf_jax.training.checkpoint import Checkpoints, Inherited
from dpaf_jax.training.signals import Interrupted, StopRequest
from dpaf_jax.training.workdir import Workdir

RESUMABLE = ('run', 'samples', 'evaluation', 'release')  # sections that may change
BY_STAGE = ('prepare', 'plan', 'train', 'release')


@functools.cache
def plan_and_manifest(base):
    return tiny.plan(base), tiny.dataset(base).manifest


def parts(base=None, **changes):
    base = base or tiny.config()
    plan, manifest = plan_and_manifest(base)
    given = {
        'config': base,
        'plan': plan,
        'manifest': manifest,
        'devices': jax.local_devices()[:2],
        'entropy': tiny.ENTROPY,
    }
    return fingerprint.components(**(given | changes))


def leaves(group, path=''):
    for field in dataclasses.fields(group):
        value = getattr(group, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f'{path}{field.name}.')
        else:
            yield f'{path}{field.name}'


def replaced(group, name):
    """The config with another value at 'section.field', whatever its range."""
    head, _, rest = name.partition('.')
    value = getattr(group, head)
    if rest:
        return dataclasses.replace(group, **{head: replaced(value, rest)})
    if isinstance(value, str):
        return dataclasses.replace(group, **{head: value + '?'})
    other = (0.5, 0.5) if isinstance(value, tuple) else value + 1
    return dataclasses.replace(group, **{head: other})


FIELDS = [
    name
    for name in leaves(tiny.config())
    if name.partition('.')[0] not in RESUMABLE and name != 'data.cache'
]


@pytest.mark.parametrize('name', FIELDS)
def test_every_config_field_that_shapes_training_is_in_it_by_name(name):
    config, section = tiny.config(), name.partition('.')[0]
    if section in METHOD_SECTIONS:  # of the run's own method, that is
        config = dataclasses.replace(config, method=section)
    if name == 'method':  # its section goes by its name, so there must be one
        assert parts(config)['config.method'] == 'dpaf'
        return
    section = name.partition('.')[0]
    if section in METHOD_SECTIONS:  # a method's fields shape its own runs alone
        config = dataclasses.replace(config, method=section)
    changed = fingerprint.changes(
        parts(config), parts(config, config=replaced(config, name))
    )
    assert changed.startswith(f'config.{name} (was ') and changed.count(' (was ') == 1


@pytest.mark.parametrize('name', sorted(set(leaves(tiny.config())) - set(FIELDS)))
def test_other_config_fields_may_change_between_sessions(name):
    config = tiny.config()
    changed = replaced(config, name)
    assert changed != config and parts(config, config=changed) == parts(config)


def test_data_entropy_plan_devices_and_libraries_are_in_it(monkeypatch):
    config, before = tiny.config(), parts()
    manifest = dataclasses.replace(tiny.dataset(config).manifest, checksum='1' * 64)
    # Named, but not quoted: messages end up in logs.
    assert fingerprint.changes(before, parts(manifest=manifest)) == 'data checksum'
    assert fingerprint.changes(before, parts(entropy=bytes(32))) == 'entropy hash'
    changed = {
        'plan': parts(plan=tiny.plan(config, noise_multiplier=2.0)),
        'device count': parts(devices=jax.local_devices()[:1]),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint.machine, 'processor', lambda: 'another')
        patch.setattr(fingerprint.machine, 'cores', lambda: 0)
        patch.setattr(fingerprint.machine, 'long_sum', lambda: '0x1.0p+10')
        patch.setattr(fingerprint.machine, 'linear_algebra', lambda: 'openblas 1')
        patch.setattr(fingerprint.machine, 'driver', lambda device: 'CUDA 99')
        patch.setenv('XLA_FLAGS', '--xla_cpu_max_isa=SSE4_2')
        names = ('processor', 'cores', 'long sum', 'linear algebra', 'driver')
        names += ('XLA_FLAGS',)
        changed |= dict.fromkeys(names, parts())
    old = dict.fromkeys(fingerprint.LIBRARIES, '0.0')
    monkeypatch.setattr(fingerprint, '_versions', lambda: old)
    changed['optax'] = parts()
    for name, now in changed.items():
        named = fingerprint.changes(before, now)
        assert f'{name} (was {before[name]!r}, now {now[name]!r})' in named
        assert fingerprint.digest(now) != fingerprint.digest(before)


def test_on_a_card_the_packages_own_flag_is_in_it(monkeypatch):
    """A command sets it, a notebook may not; it picks the kernels of products."""
    client = SimpleNamespace(platform_version='made up')
    card = SimpleNamespace(platform='gpu', device_kind='made up', client=client)
    on_cpu, told = [], []
    for flags in ('', gpu_compiler.FLAG):
        monkeypatch.setenv('XLA_FLAGS', flags)
        on_cpu.append(parts())
        told.append(parts(devices=[card]))
    assert on_cpu[0] == on_cpu[1]
    (name,) = (name for name in told[0] if told[0][name] != told[1][name])
    assert name == 'quick compilation' and name in fingerprint.MACHINE


def test_the_entropy_itself_is_not_in_it():
    text = repr(parts())
    assert tiny.ENTROPY.hex() not in text and repr(tiny.ENTROPY) not in text


def test_the_digest_is_of_content_not_of_order():
    given = parts()
    turned = dict(reversed(given.items()))
    assert fingerprint.digest(given) == fingerprint.digest(turned)
    assert fingerprint.changes(given, turned) == ''


def test_the_code_hash_changes_with_any_source(tmp_path, monkeypatch):
    package = tmp_path / 'dpaf_jax'
    (package / 'privacy').mkdir(parents=True)
    (package / 'training').mkdir()
    (package / 'training' / 'fingerprint.py').write_text('a = 1\n')
    (package / 'privacy' / 'noise.py').write_text('sigma = 1\n')
    monkeypatch.setattr(
        fingerprint, '__file__', str(package / 'training' / 'fingerprint.py')
    )
    code_hash = fingerprint.code_hash
    before = code_hash()
    assert code_hash() == before
    (package / 'privacy' / 'noise.py').write_text('sigma = 2\n')
    assert code_hash() != before
    (package / 'privacy' / 'noise.py').rename(package / 'noise.py')
    assert code_hash() != before


def test_the_code_hash_leaves_out_what_no_training_reads(tmp_path, monkeypatch):
    here = tmp_path / 'training' / 'fingerprint.py'
    monkeypatch.setattr(fingerprint, '__file__', str(here))
    before = fingerprint.code_hash()
    for name in ('verify/a.py', 'cli.py', 'methods/verify/a.py', 'methods/cli.py'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        assert (fingerprint.code_hash() == before) == (not name.startswith('methods/'))


@pytest.fixture
def resumed(tmp_path):
    """Makes the pipeline of a later session of a run that was stopped in training."""
    config = tiny_runs.begun(tmp_path / 'run')

    def pipeline(stop=None, **changes):
        fields = {name.replace('__', '.'): value for name, value in changes.items()}
        config.update_from_flattened_dict(fields)
        return Pipeline(config, tmp_path / 'run', stop=stop)

    return pipeline


def refusal(pipeline, stage='train') -> str:
    before = tiny_runs.contents(pipeline.workdir.root)
    with pytest.raises(UserError) as error:
        pipeline.run(stage)
    assert tiny_runs.contents(pipeline.workdir.root) == before
    return str(error.value)


class TestResumeIsRefusedAndNames:
    @pytest.mark.parametrize('stage', BY_STAGE)
    def test_a_config_field_at_every_stage(self, resumed, stage):
        message = refusal(resumed(privacy__epsilon=3.0), stage)
        assert 'another config: privacy.epsilon (was 10.0, now 3.0)' in message

    def test_the_data(self, resumed, tmp_path):
        pipeline = resumed()
        source = tiny_runs.write_npz(tmp_path / 'other.npz', seed=5)
        other = Pipeline(tiny_runs.one_shot(source), tmp_path / 'other')
        other.run('prepare')
        prepared, ours = other.workdir.private, pipeline.workdir.private
        for name in ('train_images.npy', 'test_images.npy'):
            (ours / 'data' / name).write_bytes((prepared / 'data' / name).read_bytes())
        manifest = (prepared / 'data' / 'manifest.json').read_text()
        path = tmp_path / 'other.npz'
        manifest = manifest.replace(str(path), pipeline.config.data.source[4:])
        (ours / 'data' / 'manifest.json').write_text(manifest)
        assert 'data checksum' in refusal(pipeline)

    def test_the_number_of_devices_after_a_kill(self, resumed):
        pipeline = resumed(run__devices=2)
        pipeline.workdir.stopped.unlink()  # as from the first step on until a stop
        message = refusal(pipeline)
        assert 'device count (was 1, now 2)' in message

    def test_the_number_of_devices_after_a_kill_and_a_stop_that_came_sooner(
        self, resumed
    ):
        """Steps past the stop have been seen under the old keys."""
        window = OneShotPhase.window

        def killed(phase, state, step):
            if step > 2:
                raise MemoryError
            return window(phase, state, step)

        with (
            mock.patch.object(OneShotPhase, 'window', killed),
            pytest.raises(MemoryError),
        ):
            resumed().run('train')
        stop = StopRequest()
        with (
            tiny_runs.stop_at(stop, 'gan', 2),
            pytest.raises(Interrupted, match='stopped at gan step 2 of 4 and saved'),
        ):
            resumed(stop).run('train')
        message = refusal(resumed(run__devices=2))
        assert 'device count (was 1, now 2)' in message and 'killed' in message
        pipeline = resumed(run__devices=1)
        pipeline.run('train')  # where it was it goes on
        assert not pipeline.workdir.stopped.exists()

    def test_the_number_of_devices_after_a_step_back_and_a_stop(self, resumed):
        stop = StopRequest()
        pipeline = resumed(stop)
        [newest] = (pipeline.workdir.root / 'checkpoints' / 'gan').glob('[0-9]*')
        shutil.rmtree(newest)
        with tiny_runs.stop_at(stop, 'gan', 1), pytest.raises(Interrupted):
            pipeline.run('train')
        assert 'device count (was 1, now 2)' in refusal(resumed(run__devices=2))

    def test_the_number_of_devices_where_a_checkpoint_is_gone(self, resumed):
        pipeline = resumed(run__devices=2)
        [newest] = (pipeline.workdir.root / 'checkpoints' / 'gan').glob('[0-9]*')
        newest.rename(newest.with_name('0'))
        assert 'device count (was 1, now 2)' in refusal(pipeline)

    @pytest.mark.parametrize('name', ['processor', 'cores', 'linear_algebra', 'driver'])
    def test_another_machine_after_a_kill(self, resumed, monkeypatch, name):
        pipeline = resumed()
        pipeline.workdir.stopped.unlink()
        monkeypatch.setattr(fingerprint.machine, name, lambda *device: 'another')
        message, name = refusal(pipeline), name.replace('_', ' ')
        noted = read_json(pipeline.workdir.fingerprint)
        assert f'{name} (was {noted[name]!r}' in message
        assert "now 'another')" in message and 'Restore' in message

    @pytest.mark.parametrize('name', ['XLA_FLAGS', 'NVIDIA_TF32_OVERRIDE'])
    def test_another_environment_also_after_a_stop(self, resumed, monkeypatch, name):
        pipeline = resumed()
        monkeypatch.setenv(name, '1')
        assert f'{name} (was ' in refusal(pipeline)

    @pytest.mark.parametrize('killed', [True, False])
    @pytest.mark.parametrize(
        'name', ['train_images.npy', 'train_labels.npy', 'train_index.npy']
    )
    def test_data_that_were_edited_where_they_lie(self, resumed, name, killed):
        """The manifest beside them knows nothing of it."""
        pipeline = resumed()
        if killed:
            pipeline.workdir.stopped.unlink()
        path = pipeline.workdir.private / 'data' / name
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        message = refusal(pipeline)
        assert str(path) in message and 'has changed since' in message
        assert 'Delete ' in message and '.npy,' not in message

    def test_data_that_were_edited_while_a_pipeline_was_kept(self, resumed):
        """As in a notebook between a stop and a second call."""
        pipeline = resumed()
        plan = pipeline.run('plan')
        images = private_data(pipeline._job, plan).images
        assert private_data(pipeline._job, plan).images is images  # read once
        path = pipeline.workdir.private / 'data' / 'train_images.npy'
        *_, last = path.read_bytes()
        with path.open('r+b') as file:
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        with pytest.raises(UserError, match='has changed since'):
            private_data(pipeline._job, plan)

    def test_a_library(self, resumed, monkeypatch):
        newer = fingerprint._versions() | {'flax': '9.9'}
        monkeypatch.setattr(fingerprint, '_versions', lambda: newer)
        assert 'flax (was' in (message := refusal(resumed()))
        assert "now '9.9')" in message and 'jaxlib' not in message

    def test_the_code(self, resumed, monkeypatch):
        monkeypatch.setattr(fingerprint, 'code_hash', lambda: 'c0de')
        monkeypatch.setattr(fingerprint, 'AS_IMPORTED', 'c0de')
        assert 'dpaf_jax code (was' in (message := refusal(resumed()))
        assert "now 'c0de')" in message

    def test_code_that_has_changed_under_the_process(self, resumed, monkeypatch):
        monkeypatch.setattr(fingerprint, 'code_hash', lambda: 'edited')
        message = refusal(resumed())
        assert 'has changed since this process imported it' in message
        assert 'restart the notebook' in message

    def test_entropy_that_is_gone_or_another(self, resumed):
        pipeline = resumed()
        pipeline.workdir.entropy.write_bytes(bytes(32))
        message = refusal(pipeline)
        assert str(pipeline.workdir.entropy) in message and 'began with' in message
        pipeline.workdir.entropy.unlink()
        message = refusal(pipeline)
        assert str(pipeline.workdir.entropy) in message and 'is missing' in message

    def test_nothing_where_only_the_machine_is_used_otherwise(self, resumed):
        pipeline = resumed(run__checkpoint_seconds=1.0, run__keep_checkpoints=3)
        pipeline.run('train')
        steps = (pipeline.workdir.root / 'checkpoints' / 'gan').iterdir()
        assert '4' in {path.name for path in steps}


@pytest.mark.parametrize('change', ['device count', 'processor'])
def test_a_stopped_run_goes_on_on_another_machine_with_other_keys(
    resumed, monkeypatch, change
):
    pipeline = resumed(run__devices=2 if change == 'device count' else 1)
    if change == 'processor':
        monkeypatch.setattr(fingerprint.machine, 'processor', lambda: 'another')
    folder = pipeline.workdir.root / 'checkpoints'
    before = read_json(pipeline.workdir.fingerprint)
    reached = read_json(pipeline.workdir.stopped)
    taken = []
    with pytest.MonkeyPatch.context() as patch:
        digest = RunKeys._digest

        def note(self, purpose, step):
            taken.append((purpose, step))
            return digest(self, purpose, step)

        patch.setattr(RunKeys, '_digest', note)
        pipeline.run('train')
    now = read_json(pipeline.workdir.fingerprint)
    assert {name for name in now if now[name] != before[name]} == {change}
    noted = read_json(pipeline.workdir.inherited)
    assert len(noted.pop('coins')) == 64
    assert noted == {'fingerprints': [fingerprint.digest(before)], 'steps': reached}
    # The one release is not made again, and no tick is.
    assert ('noise/dpagg', 0) not in taken
    assert ('public/tick', reached['gan'] - 1) not in taken
    assert ('public/tick', reached['gan']) in taken
    assert read_json(pipeline.workdir.stopped) == {'gan': 4}
    assert (folder / 'gan' / '4').is_dir()


def test_no_key_is_drawn_where_no_clip_holds(tmp_path, monkeypatch):
    def refuse():
        raise UserError('XLA_FLAGS', 'let a gradient pass', 'Leave them out')

    monkeypatch.setattr(resume, 'require_arithmetic', refuse)
    workdir = Workdir(tmp_path)
    with pytest.raises(UserError, match='let a gradient pass'):
        resume.take_keys(workdir, None, lambda entropy: {})
    assert not workdir.entropy.exists()


def test_copies_that_move_share_no_key_where_they_meet_again(tmp_path):
    def go(workdir, processor):
        parts = {'data checksum': 'd', 'entropy hash': 'e', 'processor': processor}
        return resume.take_keys(workdir, None, lambda entropy: parts)[0]

    def stop(workdir, step):
        for old in (workdir.root / 'checkpoints').glob('gan/*'):
            old.rmdir()
        (workdir.root / 'checkpoints' / 'gan' / str(step)).mkdir(parents=True)
        write_json(workdir.stopped, {'gan': step})

    (tmp_path / 'one').mkdir()
    one, two = Workdir(tmp_path / 'one'), Workdir(tmp_path / 'two')
    first = go(one, 'A')
    stop(one, 100)
    shutil.copytree(one.root, two.root)
    made = [first, go(one, 'B')]
    assert go(two, 'A') == first  # the same steps: the same bits
    assert go(one, 'B') == made[1]
    stop(two, 150)
    made.append(go(two, 'B'))
    stop(one, 130)
    made.append(go(one, 'A'))
    noise = [tuple(keys.noise('dpagg', 160)) for keys in made]
    assert len(set(noise)) == len(made)


def test_once_it_went_on_elsewhere_no_earlier_checkpoint_will_do(tmp_path):
    state = {'a': np.arange(3, dtype=np.float32)}
    old = Checkpoints(tmp_path / 'gan', 9, 'ab' * 32)
    for step in (8, 16):
        old.save(step, state)
    moved = Inherited(('ab' * 32,), {'gan': 16})

    def restore():
        return Checkpoints(tmp_path / 'gan', 9, 'cd' * 32, moved).restore(state)

    assert restore()[1] == 16
    shutil.rmtree(tmp_path / 'gan' / '16')
    with pytest.raises(UserError, match='gan/16: is missing: steps up to it were'):
        restore()
    shutil.rmtree(tmp_path / 'gan' / '8')
    with pytest.raises(UserError, match='gan/16: is missing'):
        restore()
    Checkpoints(tmp_path / 'gan', 9, 'ab' * 32).save(24, state)
    with pytest.raises(UserError, match='gan/24: this checkpoint belongs to another'):
        restore()


def test_with_the_release_made_another_config_is_refused():
    made = tiny_runs.finished('one_shot')
    config = made.config.copy_and_resolve_references()
    config.privacy.epsilon = 1.0
    pipeline = Pipeline(config, made.workdir)
    for stage in ('plan', 'train', 'release', 'samples', 'evaluate', 'report'):
        with pytest.raises(UserError, match=r'privacy.epsilon \(was 10.0, now 1.0\)'):
            pipeline.run(stage)
    with pytest.raises(UserError, match='another config'):
        pipeline.is_done()
