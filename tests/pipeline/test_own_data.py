"""A folder of a user's own: pictures as they come, and a public N that fits no split."""

import json
import pathlib
import re
import shutil
from unittest import mock

import numpy as np
import pytest
import tiny
from PIL import Image

from dpaf_jax.methods import dpaf
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.workdir import write_json
from dpaf_jax.verify.verification import verify

NUMBER = 600


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> pathlib.Path:
    """600 pictures in two classes, grey and colour, of some two hundred sizes."""
    root, rng = tmp_path_factory.mktemp('own') / 'pictures', np.random.default_rng(0)
    for i in range(NUMBER):
        shape = (*rng.integers(4, 20, 2), 3)[: 2 + i // 2 % 2]
        path = root / f'class{i % 2}' / f'{i:03d}.{("png", "jpg")[i % 3 == 0]}'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path)
    return root


def config_of(folder, number, **fields):
    fields = {'data__source': f'folder:{folder}', 'data__num_examples': number} | fields
    return tiny.config_dict(data__num_classes=2, data__channels=3, **fields)


def run_of(pipeline, *stages):
    """What training is given after these stages."""
    with mock.patch.object(dpaf, 'train', side_effect=InterruptedError) as train:
        for stage in stages:
            pipeline.run(stage)
        with pytest.raises(InterruptedError):
            pipeline.run('train')
    return train.call_args.args[0]


@pytest.mark.parametrize('number', [0, NUMBER, 1000])
def test_n_may_be_that_of_all_pictures_or_more(folder, tmp_path, number):
    config = config_of(folder, number, **tiny.ONE_SHOT)
    pipeline = Pipeline(config, tmp_path / 'run')
    run = run_of(pipeline, *pipeline.stages()[:2])
    present = len(run.data.labels)
    assert 400 < present < 550, 'a hash gives a fifth of them to the test split'
    records = number or present
    assert run.plan.num_examples == run.data.manifest.num_examples == records
    for m in run.plan.mechanisms:
        assert m.expected_batch_size == pytest.approx(m.sampling_prob * records)
        assert m.capacity == records
    assert len(np.unique(run.data.index)) == present
    assert run.data.index.min() >= 0 and run.data.index.max() < records
    assert np.any(np.diff(run.data.index) < 0), 'places are drawn'


@pytest.mark.parametrize('place', ['workdir', 'cache'])
def test_what_a_run_writes_may_not_lie_among_the_pictures(folder, tmp_path, place):
    inside = folder / 'runs' / 'x'
    cache = {'data__cache': str(inside)} if place == 'cache' else {}
    config = config_of(folder, NUMBER, **cache)
    name = '--workdir' if place == 'workdir' else r'config\.data\.cache'
    with pytest.raises(UserError, match=f'^{name}: .* lies within the pictures'):
        Pipeline(config, inside if place == 'workdir' else tmp_path / 'run')
    assert not (folder / 'runs').exists()


def test_an_n_below_the_training_pictures_is_refused(folder, tmp_path):
    config = config_of(folder, 100, **tiny.ONE_SHOT)
    pipeline = Pipeline(config, tmp_path / 'run')
    pipeline.run('plan')
    with pytest.raises(UserError, match='is 100, but there are more') as refused:
        pipeline.run('prepare')
    assert not re.search(r'\d{3}', str(refused.value).replace('is 100', ''))


def test_places_stay_where_the_run_goes_on_on_other_devices(folder, tmp_path):
    # Other devices mean another fingerprint, and what a teacher remembers is there still.
    here, there = (
        Pipeline(
            config_of(folder, NUMBER, run__devices=devices, **tiny.ONE_SHOT),
            tmp_path / 'run',
        )
        for devices in (1, 2)
    )
    here = run_of(here, 'plan', 'prepare')
    (here.workdir / 'checkpoints' / 'gan' / '4').mkdir(parents=True)
    write_json(there.workdir.stopped, {'gan': 4})
    there = run_of(there)
    assert here.keys.fingerprint != there.keys.fingerprint
    np.testing.assert_array_equal(here.data.index, there.data.index)


WHOLE = {
    'one_shot': tiny.ONE_SHOT,
    'g_pate': {'method': 'g_pate'},
    'canonical': {},
    'labelled': tiny.ONE_SHOT | tiny.LABELLED,
    'dp_merf': {'method': 'dp_merf'},
    'dp_gan': {'method': 'dp_gan'},
    'dpba_wgan': {'method': 'dpba_wgan'},
    'gs_wgan': {'method': 'gs_wgan', 'gs_wgan__batch_size': 200},
    'dpgen': {'method': 'dpgen'},
}
FAST = ('one_shot',)


@pytest.mark.parametrize(
    'kind', [k if k in FAST else pytest.param(k, marks=pytest.mark.slow) for k in WHOLE]
)
def test_from_pictures_to_a_verified_release(folder, tmp_path, kind):
    """With every method, and more than half of the records empty."""
    pipeline = Pipeline(config_of(folder, 1000, **WHOLE[kind]), tmp_path / 'run')
    for stage in ('plan', 'prepare', 'train', 'release'):
        pipeline.run(stage)
    assert verify(pipeline.workdir.release).passed
    manifest = json.loads((tmp_path / 'run/private/data/manifest.json').read_text())
    present = str(manifest['num_present'])
    for name in ('release/privacy.json', 'release/config.json', 'release/README.md'):
        words = re.split(r'[^0-9.]+', (tmp_path / 'run' / name).read_text())
        assert '1000' in words and present not in words, name


OPEN = {
    'data__num_classes': 0,
    'data__class_names': '?',
    'data__image_size': 0,
    'data__channels': 0,
    'data__num_examples': 0,
    'privacy__delta': 0.0,
}


def test_open_fields_are_decided_once_said_and_kept(folder, tmp_path, capsys):
    """From a folder alone to a verified release; nothing is looked at a second time."""
    config = tiny.config_dict(data__source=f'folder:{folder}', **OPEN, **tiny.ONE_SHOT)
    pipeline = Pipeline(config, tmp_path / 'run')
    said = capsys.readouterr().out
    data, privacy = pipeline.config.data, pipeline.config.privacy
    assert (data.num_classes, data.image_size, data.channels) == (2, 8, 3)
    assert 400 < data.num_examples < 550 and privacy.delta == 2e-4
    for name in ('num_classes=2', 'image_size=8', f'num_examples={data.num_examples}'):
        assert f'--config.data.{name}' in said
    assert '--config.privacy.delta=0.0002' in said
    for stage in ('plan', 'prepare', 'train', 'release'):
        pipeline.run(stage)
    assert verify(pipeline.workdir.release).passed
    kept = json.loads((pipeline.workdir.release / 'config.json').read_text())
    assert kept['data']['num_examples'] == data.num_examples
    assert kept['privacy']['delta'] == 2e-4
    assert kept['data']['class_names'] == 'class0/class1'
    card = (pipeline.workdir.release / 'README.md').read_text()
    assert '2 classes (class0, class1)' in card
    with mock.patch('dpaf_jax.pipeline.decide.survey', side_effect=AssertionError):
        assert Pipeline(config, tmp_path / 'run').config == pipeline.config


@pytest.mark.parametrize('change', ['source', 'class', 'split'])
def test_what_was_decided_of_other_data_is_not_taken(tmp_path, change):
    """A plan is no promise: the folder may grow before images are prepared."""
    config = tiny.config_dict(
        data__source=f'folder:{_small(tmp_path, "cat", "dog")}',
        **OPEN,
        **tiny.ONE_SHOT,
    )
    first = Pipeline(config, tmp_path / 'run')
    first.run('plan')
    expected = first.config.data.class_names
    if change == 'source':
        config.data.source = f'folder:{_small(tmp_path / "other", "benign", "tumour")}'
        expected = 'benign/tumour'
    elif change == 'class':
        _small(tmp_path, 'owl')
        expected = 'cat/dog/owl'
    else:
        config.data.test_fraction = 0.5
    second = Pipeline(config, tmp_path / 'run').config.data
    assert second.class_names == expected
    assert second.num_examples != first.config.data.num_examples


def _small(root, *classes):
    rng = np.random.default_rng(1)
    for name in classes:
        (root / 'small' / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 256, (9, 9), np.uint8)
            Image.fromarray(pixels).save(root / 'small' / name / f'{i}.png')
    return root / 'small'


@pytest.mark.parametrize('is_terminal', [True, False])
def test_what_was_seen_goes_to_a_terminal_or_a_private_file(
    folder, tmp_path, capsys, monkeypatch, is_terminal
):
    """Numbers of pictures by class and names of files are no matter for a log."""
    monkeypatch.setattr('sys.stdout.isatty', lambda: is_terminal)
    config = tiny.config_dict(data__source=f'folder:{folder}', **OPEN, **tiny.ONE_SHOT)
    workdir = Pipeline(config, tmp_path / 'run').workdir
    said, kept = capsys.readouterr().out, workdir.private / 'survey.txt'
    assert ('class0: 300' in said) == is_terminal
    assert kept.exists() == (not is_terminal)
    if not is_terminal:
        assert 'class0: 300' in kept.read_text() and str(kept) in said
        assert workdir.private.stat().st_mode & 0o777 == 0o700


def test_a_release_for_groups_verifies_and_says_so(folder, tmp_path):
    """Ten pictures a group: by the first two digits of a file's name."""
    fields = tiny.ONE_SHOT | {'data__group': r'([0-9]{2})[0-9][.]'}
    # So few that images are bent, as the card says, by an N that the config leaves open.
    fields |= {
        'data__num_examples': 0,
        'data__num_classes': 2,
        'dpaf__classifier__private': 'labeller',
        'dpaf__generator__warp': 0.0,
        'dpaf__generator__warp_of_few': 0.07,
    }
    config = tiny.config_dict(data__source=f'folder:{folder}', **fields)
    pipeline = Pipeline(config, tmp_path / 'run')
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    release = pipeline.workdir.release
    assert verify(release).passed
    privacy = json.loads((release / 'privacy.json').read_text())
    assert privacy['num_examples'] <= NUMBER / 10
    assert 'all images of one group' in privacy['neighbors']
    assert 'a whole group of images' in (release / 'README.md').read_text()


def test_of_one_class_no_labeller_is_learnt(folder, tmp_path, capsys):
    """It would take three quarters of epsilon, and have nothing to tell."""
    shutil.copytree(folder / 'class0', tmp_path / 'pictures' / 'faces')
    taps = {'dpaf__taps': 'count,pixels,labeller', 'dpaf__generator__warp': 0.1}
    config = tiny.config_dict(
        data__source=f'folder:{tmp_path}/pictures',
        **OPEN,
        **(tiny.ONE_SHOT | tiny.LABELLED | taps),
    )
    pipeline = Pipeline(config, tmp_path / 'run')
    assert 'One class: no labeller is learnt' in capsys.readouterr().out
    assert pipeline.config.dpaf.tap_names == ('count', 'pixels')
    plan = pipeline.run('plan')
    assert [m.name for m in plan.mechanisms] == ['dpagg'] and plan.epsilon > 9.9
    for stage in ('prepare', 'train', 'release'):
        pipeline.run(stage)
    assert verify(pipeline.workdir.release).passed


def test_a_stated_field_is_not_decided(folder, tmp_path, capsys):
    fields = OPEN | {'data__channels': 1, 'data__num_examples': 10_000}
    config = tiny.config_dict(
        data__source=f'folder:{folder}', **fields, **tiny.ONE_SHOT
    )
    made = Pipeline(config, tmp_path / 'run').config
    assert made.data.channels == 1 and made.privacy.delta == 1e-5
    assert 'channels=' not in capsys.readouterr().out


def test_without_a_test_split_all_are_trained_on_and_none_is_judged(
    folder, tmp_path, caplog
):
    config = config_of(folder, NUMBER, data__test_fraction=0.0, **tiny.ONE_SHOT)
    made = Pipeline(config, tmp_path / 'run')
    for stage in made.stages():
        made.run(stage)
    assert json.loads((tmp_path / 'run/private/data/manifest.json').read_text())[
        'num_present'
    ] == NUMBER  # fmt: skip
    assert 'Not evaluated: data.test_fraction = 0' in caplog.text
    assert json.loads((tmp_path / 'run/report.json').read_text())['accuracy'] == {}
    assert made.is_done()


def test_delta_alone_is_decided_by_n_without_a_look(tmp_path, capsys):
    config = tiny.config_dict(
        data__source='folder:/no/such',
        data__num_examples=40,
        privacy__delta=0.0,
        **tiny.ONE_SHOT,
    )
    made = Pipeline(config, tmp_path / 'run').config
    assert made.privacy.delta == 2e-3
    assert '--config.privacy.delta=0.002' in capsys.readouterr().out
