"""What a user gets wrong: one message that names it, status 2, nothing lost."""

import collections
import contextlib
import pathlib
import re
from collections.abc import Callable

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tiny_runs

from dpaf_jax.runtime import files
from dpaf_jax.training.workdir import Workdir

DIGITS, MNIST = '--config=configs/digits.py', '--config=configs/mnist.py'
NOWHERE = '--config=configs/recommended.py:folder:/no/such'  # looked at before a run
EARLIER = ('samples/synthetic.npz', 'report.json', 'private/data.note')


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
    monkeypatch.chdir(tiny_runs.ROOT)


@pytest.fixture
def refused(tmp_path) -> Callable[..., str]:
    """Runs the command in a folder with earlier results; returns its one message."""
    for name in EARLIER:
        path = tmp_path / 'run' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('earlier')

    def run(
        *args: str, workdir: pathlib.Path = tmp_path / 'run', status: int = 2
    ) -> str:
        before = tiny_runs.contents(workdir)
        outcome = tiny_runs.call_main(*args, f'--workdir={workdir}')
        assert (outcome.code, outcome.err.count('\n')) == (status, 1), outcome
        assert outcome.err.startswith('error: ') and 'Traceback' not in outcome.err
        after = tiny_runs.contents(workdir)
        assert {path: after[path] for path in before} == before
        assert not (workdir / 'release').exists()
        return outcome.err.removeprefix('error: ').rstrip('\n')

    return run


def flags(config, base='digits') -> list[str]:
    return [
        f'--config=configs/{base}.py',
        *tiny_runs.flags_of(config, tiny_runs.load_config(base)),
    ]


# --- the command line --------------------------------------------------------------


@pytest.mark.parametrize(
    ('args', 'message'),
    [
        ((DIGITS, '--config.privacy.epsilonn=1'), '--config.privacy.epsilonn: no such'),
        ((DIGITS, '--config.nosuch.field=1'), '--config.nosuch.field: no such field'),
        ((DIGITS, '--config.dpaf.batch_size=x'), "batch_size: is 'x'. Give a whole number"),
        ((DIGITS, '--config.privacy.delta=tiny'), "delta: is 'tiny'. Give a number"),
        ((DIGITS, '--config.evaluation.train_on_real=7'), 'train_on_real=7: .*oolean'),
        ((DIGITS, '--config.privacy=3'), '--config.privacy=3: '),
        ((DIGITS, '--confgi=3'), "'confgi'.*Did you mean: config"),
        ((DIGITS, 'stray'), "unknown argument 'stray': flags start with --"),
        ((DIGITS, '--stage=bake'), "--stage: is 'bake'. Choose all or prepare, plan"),
        ((DIGITS, '--config.method=gan'), "config.method: is 'gan'. Choose one of dpaf"),
        ((NOWHERE, '--stage=bake'), "--stage: is 'bake'. Choose all or prepare, plan"),
        ((NOWHERE, '--config.method=gan'), "config.method: is 'gan'. Choose one of dpaf"),
        (('--config=configs/no.py',), '--config: configs/no.py is not there. Give a file'),
        (('--config=configs/recomended.py',), 'not there. Did you mean configs/recommended'),
        ((DIGITS, '--config.privacy.epsilom=1'), 'mean --config.privacy.epsilon?'),
        ((DIGITS, '--config.epsilon=1'), 'mean --config.privacy.epsilon?'),
        ((DIGITS, '--config.n_critic=1'), 'mean --config.dpaf.n_critic?'),
        ((DIGITS, '--config.dpgen.steps=1'), 'config.dpgen.steps: .* dpaf does not read'),
        (('--config=configs',), "Is a directory: 'configs'"),
        (('--config=README.md',), 'README.md, line'),
        (('--config=tests/conftest.py',), "no attribute 'get_config'"),
        (('--config=configs/celeba64.py:age',), "celeba64.py:age: .*'age'.*Choose"),
        (('--config=configs/mnist.py:age',), "mnist.py:age: .*'age'.*Choose"),
        (('--config=configs/recommended.py:mnits',), "source is 'mnits'. Did you mean mnist"),
        (('--config=configs/recommended.py:celeba64',), 'celeba64:gender or celeba64:hair'),
        (('--config=configs/recommended.py:xyz',), 'Choose one of digits, mnist,.* folder:/'),
        (('--config=configs/recommended.py:digits,x',), "epsilon, the number behind .*'x'"),
        (('--config=configs/public.py:celeba64:hair,3,',), "epsilon, the number .*'3,'"),
        (('--config=configs/dpgen.py:mnits',), "source is 'mnits'. Did you mean mnist"),
        ((), '^--config is needed. See python -m dpaf_jax.*--help'),
    ],
    ids=lambda value: value[-1] if value and isinstance(value, tuple) else '',
)  # fmt: skip
def test_the_command_line(refused, args, message):
    assert re.search(message, refused(*args))


# --- settings that no run can have -------------------------------------------------


@pytest.mark.parametrize(
    ('field', 'value', 'message'),
    [
        ('privacy.epsilon', '0', 'is 0.0. It must be above 0'),
        ('privacy.epsilon', '-1', 'is -1.0. It must be above 0'),
        ('privacy.epsilon', 'nan', 'is nan'),
        ('privacy.delta', '-1e-5', 'is -1e-05. It must be in (0, 1)'),
        ('privacy.delta', '1', 'is 1.0. It must be in (0, 1)'),
        ('privacy.budgets', '5,rest,5.5', "is '5,rest,5.5', which adds up to 10.5 of"),
        ('privacy.budgets', '60%,20%,30%', "is '60%,20%,30%', which adds up to 11 of"),
        ('privacy.budgets', '1,2', 'has 2 entries. Give one for each of conv1, conv2'),
        ('privacy.budgets', 'rest,rest,1', "is 'rest,rest,1', with two times 'rest'"),
        ('privacy.budgets', '0,rest,1', "has the entry '0'"),
        ('privacy.guarantee', 'sure', "is 'sure'. Choose one of 'certified'"),
        ('dpaf.batch_size', '60001', 'asks for 60001 images a step of only 60000'),
        ('dpaf.classifier.batch_size', '70000', 'asks for 70000 images a step'),
        ('dpaf.classifier.sampling_prob', '2', 'is 2.0. It must be at least 0.0 and at most'),
        ('dpaf.conv2.batch_size', '70000', 'asks for 70000 images a step'),
        ('networks.layers', 'C2C1', "is 'C2C1'. Write it like 'C2-C1-x'"),
        ('networks.layers', 'C0-C1-x', "is 'C0-C1-x'. conv1 and conv2 need a layer"),
        ('networks.layers', 'C4-C1-x', '28 x 28 images to one pixel: 28 -> 14 -> 7'),
        ('networks.layers', 'C2-C2-C2', 'one pixel'),
        ('data.image_size', '3', 'is 3. It must be at least 4'),
        ('data.num_examples', '-5', 'is -5. It must be at least 0'),
        ('dpaf.taps', 'conv3', "is 'conv3'"),
        ('dpaf.classes_per_step', '3', 'is 3. Use a divisor'),
        ('dpaf.generator.whitenings', '1', 'is 1, but no class aggregates'),
        ('dpaf.generator.loss_smooth', '1', 'is 1.0, but no aggregates are matched'),
        ('dpaf.taps', 'count,labeller', "is 'count,labeller', but no labeller is learnt"),
        ('dpaf.generator.warp', '0.1', 'is 0.1, but no labeller looks'),
    ],
)  # fmt: skip
def test_settings_are_refused_by_the_plan(refused, field, value, message):
    argument = 'printed' if field.endswith('batch_size') else 'one_shot'
    needs_match = ('dpaf.generator.whitenings', 'dpaf.generator.loss_smooth')
    if field in ('privacy.budgets', *needs_match):
        argument = 'printed'
    text = refused(f'{MNIST}:{argument}', f'--config.{field}={value}', '--stage=plan')
    assert text.startswith(f'config.{field}: ') and message in text


def test_a_budget_that_cannot_be_met_names_what_to_change(refused):
    text = refused(f'{MNIST}:one_shot', '--config.privacy.epsilon=1e-7', '--stage=plan')
    assert text.startswith('config.privacy.epsilon: leaves so little of 1e-07 to dpagg')
    assert text.endswith('Raise it, or take fewer steps.')


def test_with_a_public_n_settings_are_refused_before_any_image_is_read(refused):
    text = refused(
        MNIST, '--config.networks.layers=C9-C9-x', '--config.data.source=npz:/no'
    )
    assert text.startswith('config.networks.layers')


def test_a_delta_that_would_let_one_image_out_is_refused(refused):
    text = refused(MNIST, '--config.privacy.delta=2e-5', '--stage=plan')
    assert text.startswith('config.privacy.delta: is 2e-05, not below 1 / num_examples')
    assert 'Use 2e-06 or less' in text


# --- the data ----------------------------------------------------------------------


def npz(path: pathlib.Path, **arrays: np.ndarray) -> str:
    source = tiny_runs.write_npz(path)
    with np.load(path) as archive:
        given = dict(archive)
    np.savez(path, **(given | arrays))
    return source


def test_labels_outside_the_classes(refused, tmp_path):
    labels = np.arange(24) % 2
    labels[5] = 2
    source = npz(tmp_path / 'x.npz', train_y=labels)
    text = refused(*flags(tiny_runs.one_shot(source)))
    assert f'{tmp_path}/x.npz' in text and 'train_x[5]' in text
    assert 'outside 0 .. 1' in text


def test_a_class_without_images(refused, tmp_path):
    source = npz(tmp_path / 'x.npz', train_y=np.zeros(24, int))
    text = refused(*flags(tiny_runs.one_shot(source)))
    assert f'{tmp_path}/x.npz: class 1 (1) has no training images. Add' in text


def test_a_truncated_image(refused, tmp_path):
    source = tiny_runs.write_folder(tmp_path / 'images')
    path = tmp_path / 'images' / 'class1' / '013.png'
    path.write_bytes(path.read_bytes()[:60])
    text = refused(*flags(tiny_runs.one_shot(source)))
    assert 'class1/013.png' in text and 'Replace it' in text


def test_all_damaged_images_are_named_at_once(refused, tmp_path):
    source = tiny_runs.write_folder(tmp_path / 'images')
    (tmp_path / 'images' / 'class0' / '002.png').write_bytes(b'')
    path = tmp_path / 'images' / 'class1' / '013.png'
    path.write_bytes(path.read_bytes()[:60])
    text = refused(*flags(tiny_runs.one_shot(source)))
    assert 'class0/002.png is not a picture, or is damaged; class1/013.png' in text
    assert 'Replace each' in text and 'perhaps others' not in text


def test_a_folder_of_damaged_images_is_not_listed_whole(refused, tmp_path):
    source = tiny_runs.write_folder(tmp_path / 'images')
    for path in (tmp_path / 'images').rglob('*.png'):
        path.write_bytes(b'')
    text = refused(*flags(tiny_runs.one_shot(source)))
    assert text.count('.png is not a picture') == 10 and '; perhaps others.' in text


def test_nan_in_an_npz(refused, tmp_path):
    images = np.zeros((24, 8, 8), np.float32)
    images[7, 1, 1] = np.nan
    source = npz(tmp_path / 'x.npz', train_x=images)
    text = refused(*flags(tiny_runs.one_shot(source)))
    assert 'x.npz: train_x[7] has values outside [0, 1], NaN or inf. Scale' in text


def test_an_n_that_is_less_than_the_data_have(refused, tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'x.npz')
    text = refused(*flags(tiny_runs.one_shot(source, data__num_examples=23)))
    assert text == (
        'config.data.num_examples: is 23, but there are more training images than '
        'that. Give the number of all your images or any larger public one, or 0 to take '
        'and publish the number of training images.'
    )


def test_n_is_needed_for_a_plan_without_data(refused):
    text = refused('--config=configs/ffhq128.py', '--stage=plan')
    assert text.startswith(
        'config.data.num_examples: is 0, and no records can be counted'
    )
    assert 'Give the number of your images, or a larger public one' in text


@pytest.mark.parametrize('kind', ['npz', 'folder', 'celeba', 'ffhq'])
def test_data_that_are_not_there(refused, tmp_path, kind):
    attribute = {'celeba': 'hair', 'ffhq': 'gender'}.get(kind, '')
    config = tiny_runs.one_shot(f'{kind}:{tmp_path}/no', data__attribute=attribute)
    text = refused(*flags(config))
    assert text.startswith('config.data.source: names ') and f'{tmp_path}/no' in text


# --- the workdir -------------------------------------------------------------------


def test_a_workdir_that_cannot_be_written(tmp_path, refused):
    (tmp_path / 'file').write_text('in the way')
    for place, why in (
        (tmp_path / 'file', 'is a file, or below one'),
        (tmp_path / 'file' / 'run', 'is a file, or below one'),
        (pathlib.Path('/proc/run'), 'cannot be written ('),
    ):
        text = refused(DIGITS, '--stage=plan', workdir=place)
        assert text.startswith(f'--workdir: {place} {why}')


def test_a_disk_that_is_full(refused, monkeypatch):
    usage = collections.namedtuple('usage', 'total used free')
    monkeypatch.setattr(
        files.shutil, 'disk_usage', lambda path: usage(10**12, 10**12, 2**20)
    )
    text = refused(DIGITS, '--stage=plan')
    assert 'needs 200.0 MiB, and 1.0 MiB are free on that disk: 199.0 MiB are' in text


def test_a_disk_that_fills_up_while_a_file_is_written(refused, monkeypatch, tmp_path):
    def full(descriptor):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(files.os, 'fsync', full)
    text = refused(DIGITS, '--stage=plan')
    assert text.startswith(f'{tmp_path}/run: the disk is full (')


def test_a_workdir_in_use_with_a_status_that_launchers_start_again_after(
    refused, tmp_path
):
    with Workdir(tmp_path / 'run').locked():
        text = refused(DIGITS, '--stage=plan', status=144)
    assert text.startswith(f'--workdir: {tmp_path}/run is in use by another run. Wait')


@pytest.mark.parametrize(
    ('stage', 'first'),
    [('train', 'plan'), ('release', 'plan'), ('samples', 'release'), ('report', 'release')],
)  # fmt: skip
def test_a_stage_before_its_predecessor(refused, stage, first):
    text = refused(DIGITS, f'--stage={stage}')
    assert text.startswith('--stage: needs ') and text.endswith(
        f'--stage={first} first.'
    )


def test_evaluation_before_samples(refused, tmp_path):
    (tmp_path / 'run' / 'samples' / 'synthetic.npz').unlink()
    text = refused(DIGITS, '--stage=evaluate')
    assert text.endswith('which is not there. Run --stage=samples first.')


def test_training_before_the_data_are_prepared(refused, tmp_path):
    workdir = f'--workdir={tmp_path}/run'
    assert tiny_runs.call_main(DIGITS, '--stage=plan', workdir).code == 0
    text = refused(DIGITS, '--stage=train')
    assert text.endswith('Run --stage=prepare first.')


def test_more_devices_than_there_are(refused, tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'x.npz')
    text = refused(*flags(tiny_runs.one_shot(source, run__devices=99)))
    assert text.startswith('config.run.devices: is 99, but this machine has 8 cpu. Ask')
    assert not (tmp_path / 'run' / 'private' / 'data').exists()


def test_a_device_that_jax_does_not_find(refused, monkeypatch, tmp_path):
    def nowhere():
        raise RuntimeError("Unable to initialize backend 'tpu': no such library\nmore")

    monkeypatch.setenv('JAX_PLATFORMS', 'tpu')
    monkeypatch.setattr('jax.devices', nowhere)
    text = refused(DIGITS)
    assert text.startswith("JAX_PLATFORMS: is 'tpu', and JAX finds no such device (Un")
    assert 'more' not in text
    assert not (tmp_path / 'run' / 'private' / 'data').exists()


def test_a_gpu_that_jax_replaces_by_the_cpu_without_a_word(refused, monkeypatch):
    monkeypatch.setenv('JAX_PLATFORMS', 'cuda,cpu')  # as the launchers set it
    text = refused(DIGITS)
    assert text.startswith(
        "JAX_PLATFORMS: is 'cuda,cpu', and JAX finds no such device (the"
    )


def test_more_samples_than_the_disk_has_room_for_before_training(refused, tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'x.npz')
    text = refused(*flags(tiny_runs.one_shot(source, samples__num=10**12)))
    assert text.endswith('Lower config.samples.num, or free them.')
    assert not (tmp_path / 'run' / 'checkpoints').exists()


def test_a_group_that_is_no_pattern(refused, tmp_path):
    source = tiny_runs.write_folder(tmp_path / 'images')
    text = refused(*flags(tiny_runs.one_shot(source, data__group='(')))
    assert text.startswith("config.data.group: is '(' (missing ), unterminated")


def test_a_group_that_is_no_pattern_where_the_data_are_looked_at(refused, tmp_path):
    source = tiny_runs.write_folder(tmp_path / 'images')
    text = refused(f'--config=configs/recommended.py:{source}', '--config.data.group=(')
    assert text.startswith("config.data.group: is '(' (missing ), unterminated")


# --- a run that was begun ----------------------------------------------------------


@pytest.fixture
def resume(tmp_path, refused):
    """Continues a run that was stopped in training; returns the one message."""
    config = tiny_runs.begun(tmp_path / 'begun')
    return lambda *args: refused(*flags(config), *args, workdir=tmp_path / 'begun')


def test_a_plan_that_was_changed(resume, tmp_path):
    path = tmp_path / 'begun' / 'plan.json'
    plan = path.read_text()
    for content in (plan[:-20], plan.replace('"steps": 1', '"steps": 2'), '{}'):
        path.write_text(content)
        text = resume()
        assert text.startswith(f'{path}: is not as it was written. Delete it')


@pytest.mark.parametrize('name', ['config.json', 'fingerprint.json'])
def test_a_damaged_file_of_the_private_folder(resume, tmp_path, name):
    path = tmp_path / 'begun' / 'private' / name
    path.write_bytes(path.read_bytes()[:-30])
    remedy = 'Restore or delete it' if name == 'config.json' else 'Restore it to resume'
    assert resume().startswith(f'{path}: is damaged. {remedy}')


def test_another_method_is_told_by_its_name_alone(tmp_path, refused):
    config = tiny_runs.begun(tmp_path / 'begun')
    config.method = 'dp_merf'
    text = refused(*flags(config), workdir=tmp_path / 'begun')
    assert "another config: method (was 'dpaf', now 'dp_merf'). Give the old" in text


def test_a_lost_fingerprint(resume, tmp_path):
    path = tmp_path / 'begun' / 'private' / 'fingerprint.json'
    path.unlink()
    text = resume()
    assert text.startswith(f'{path}: is missing, although training has begun here')
    assert 'it spends epsilon anew' in text


def checkpoint(workdir: pathlib.Path) -> pathlib.Path:
    (step,) = (workdir / 'checkpoints' / 'gan').glob('[0-9]*')
    return step


def test_a_corrupt_checkpoint(resume, tmp_path):
    step = checkpoint(tmp_path / 'begun')
    largest = max(
        (p for p in step.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size
    )
    content = bytearray(largest.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(b ^ 0xFF for b in content[middle : middle + 8])
    largest.write_bytes(content)
    text = resume()
    assert text.startswith(f'{step}: this checkpoint is damaged')
    assert 'Delete this folder to resume from the one before it' in text


def test_a_checkpoint_with_files_missing(resume, tmp_path):
    step = checkpoint(tmp_path / 'begun')
    for path in step.rglob('*'):
        if path.is_file() and 'd' in path.parts[-2:]:
            path.unlink()
    assert resume().startswith(f'{step}: this checkpoint is damaged')


def test_a_checkpoint_of_another_run(resume, tmp_path):
    step = checkpoint(tmp_path / 'begun')
    with contextlib.closing(ocp.StandardCheckpointer()) as files:
        content = files.restore(step / 'default')
        content['run'] = content['run'][::-1].copy()
        files.save(step / 'default', content, force=True)
    text = resume()
    assert text.startswith(f'{step}: this checkpoint belongs to another run. ')
    assert 'it spends epsilon anew' in text
