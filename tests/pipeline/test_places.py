"""Where a run may write: not into what is handed out, not over what is no run."""

import pathlib

import pytest
import tiny_runs

from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.runtime.errors import UserError


def refused(workdir, source='npz:x', **fields) -> str:
    with pytest.raises(UserError) as error:
        Pipeline(tiny_runs.one_shot(source, **fields), workdir)
    return str(error.value)


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.rglob('*'))


@pytest.fixture
def handed_out(tmp_path) -> pathlib.Path:
    """A run with what it hands out, and a copy of its release elsewhere."""
    for folder in ('mine/private', 'mine/samples', 'mine/release', 'copy'):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ('mine/release', 'copy'):
        for name in ('generator.safetensors', 'privacy.json'):
            (tmp_path / folder / name).touch()
    (tmp_path / 'link').symlink_to(tmp_path / 'mine' / 'samples')
    return tmp_path


@pytest.mark.parametrize('field', ['--workdir', 'config.data.cache'])
@pytest.mark.parametrize(
    'inside',
    ['mine/release', 'mine/samples', 'mine/samples/x', 'mine/release/x/y', 'copy', 'link'],
)  # fmt: skip
def test_private_images_do_not_go_where_all_is_handed_out(handed_out, inside, field):
    before, place = files_of(handed_out), handed_out / inside
    if field == '--workdir':
        message = refused(place)
    else:
        message = refused(handed_out / 'new', data__cache=str(place))
    assert message.startswith(f'{field}: {place} ')
    assert message.endswith('a folder to hand out. Give a folder elsewhere.')
    assert files_of(handed_out) == before


def test_a_folder_called_release_may_be_a_run(tmp_path):
    place = tmp_path / 'release' / 'samples'
    assert Pipeline(tiny_runs.one_shot('npz:x'), place).workdir.root == place


def test_a_release_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / 'foreign' / 'release').mkdir(parents=True)
    before = files_of(tmp_path)
    message = refused(tmp_path / 'foreign')
    assert message == (
        f'--workdir: {tmp_path}/foreign is no run, but has a folder release/ of something '
        'else. Give a new folder.'
    )
    assert files_of(tmp_path) == before


def test_the_whole_disk_and_nothing_are_no_workdirs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused('/').startswith('--workdir: is /, the whole disk. Give')
    assert refused('') == '--workdir: is empty. Give the folder of the run.'
    assert not files_of(tmp_path)


@pytest.mark.parametrize('open_', [{}, {'data__num_classes': 0}])
@pytest.mark.parametrize('kind', ['folder', 'npz'])
def test_no_path_is_not_the_current_folder(tmp_path, monkeypatch, kind, open_):
    (tmp_path / 'pictures').mkdir()
    monkeypatch.chdir(tmp_path / 'pictures')
    message = refused(tmp_path / 'run', f'{kind}:', **open_)
    assert message.startswith(f"config.data.source: is '{kind}:'. Use 'digits'")
