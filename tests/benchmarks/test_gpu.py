"""`benchmarks.gpu` runs its parts within a time, and writes down what became of each."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def gpu():
    """Imported late: its flags are not those of other commands."""
    return importlib.import_module('benchmarks.gpu')


@pytest.fixture
def part(gpu, tmp_path, monkeypatch):
    """A part that runs the given program, as if it were a benchmark."""
    (tmp_path / 'benchmarks').mkdir()
    monkeypatch.setenv('PYTHONPATH', str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu, '_asked', lambda fields: [])  # no card

    def made(name, program, **variables):
        (tmp_path / 'benchmarks' / f'{name}.py').write_text(program)
        return gpu.Part(name, name, ('--rounds=1',), variables)

    return made


def test_every_part_gets_its_flags_and_variables_and_one_file_has_all(
    gpu, part, tmp_path, capsys
):
    program = """
import json, os, sys
print('a table')
print(json.dumps({'argv': sys.argv[1:], 'tf32': os.environ.get('NVIDIA_TF32_OVERRIDE')}))
"""
    asked = [part('one', program), part('two', program, NVIDIA_TF32_OVERRIDE='0')]
    assert gpu.measure_all(asked, tmp_path / 'out.json', 600.0)
    found = json.loads((tmp_path / 'out.json').read_text())
    assert list(found['parts']) == ['one', 'two']
    assert all(part['date'] for part in found['parts'].values())
    assert found['parts']['one']['argv'] == ['--rounds=1']
    assert [each['tf32'] for each in found['parts'].values()] == [None, '0']


def test_what_fails_or_takes_too_long_is_noted_as_such(gpu, part, tmp_path):
    breaks = part('breaks', 'raise SystemExit("no such card")')
    assert not gpu.measure_all([breaks], tmp_path / 'out.json', 600.0)
    found = json.loads((tmp_path / 'out.json').read_text())['parts']
    assert found == {'breaks': {'error': 'no such card'}}
    sleeps = part('sleeps', 'import time; time.sleep(60)')
    assert gpu.measured(sleeps, 0.3)['error'].startswith('not done after')
    assert gpu.measured(sleeps, 0.0) == {'error': 'no time left'}


def test_a_second_call_measures_what_has_no_result_on_this_card(
    gpu, part, tmp_path, capsys, monkeypatch
):
    count = 'import json; print(json.dumps({"seconds": %d}))'
    out = tmp_path / 'out.json'
    assert gpu.measure_all([part('done', count % 1)], out, 600.0)
    done, late = part('done', count % 2), part('late', count % 3)
    assert gpu.measure_all([done, late], out, 600.0)
    found = json.loads(out.read_text())['parts']
    assert [each['seconds'] for each in found.values()] == [1, 3]
    assert f'done: kept, of {found["done"]["date"]}' in capsys.readouterr().out
    monkeypatch.setattr(gpu, '_asked', lambda fields: ['another', '1', '2'])
    assert gpu.measure_all([done], out, 600.0)
    assert json.loads(out.read_text())['parts']['done']['seconds'] == 2


def test_what_nvidia_smi_says_becomes_numbers(gpu, monkeypatch):
    assert gpu.numbers(['97 %', '1024 MiB', '55.5 W']) == [97.0, 1024.0, 55.5]
    monkeypatch.setattr(gpu, '_asked', lambda fields: ['50 %', '2048 MiB', '[N/A]'])
    with gpu.Watch() as watch:
        pass
    assert watch.seen() == {'utilisation_percent': 50.0, 'memory_mib': 2048.0}
    assert gpu.Watch().seen() == {}


def test_arrays_are_what_a_job_can_read(gpu, tmp_path):
    path = gpu.arrays(tmp_path / 'x.npz', 60, 8, 3, 2)
    with np.load(path) as found:
        assert found['train_x'].shape == (60, 8, 8, 3)
        assert set(found['test_y']) == {0, 1} and len(found['test_y']) == 10


def test_faces_are_those_at_hand_where_the_folder_of_data_has_them(
    gpu, tmp_path, monkeypatch
):
    data, folder = tmp_path / 'data', tmp_path / 'folder'
    (data / 'img_align_celeba').mkdir(parents=True)
    folder.mkdir()
    (data / 'mnist.npz').touch()
    with tarfile.open(data / 'celeba10k.tar', 'w') as tar:
        tar.add(data / 'img_align_celeba', 'img_align_celeba')
    monkeypatch.setenv('DPAF_DATA', str(data))
    jobs = gpu.whole_jobs(folder, smoke=False)
    assert jobs['faces 64 x 64'] == [
        'celeba64:gender',
        f'--config.data.source=celeba:{folder}',
    ]
    assert (folder / 'img_align_celeba').is_dir()
    (data / 'celeba10k.tar').unlink()
    assert gpu.whole_jobs(folder, smoke=False)['faces 64 x 64'] == [
        f'npz:{folder / "faces.npz"}'
    ]


def test_every_method_and_both_jobs_are_measured(gpu):
    jobs = {'MNIST': ['m', '--more=1'], 'faces 64 x 64': ['f']}
    for smoke in (False, True):
        names = [part.name for part in gpu.parts(jobs, smoke)]
        assert {'clipping', 'MNIST, whole', 'faces 64 x 64, whole'} < set(names)
        steps = ' '.join(name for name in names if name.startswith('step'))
        assert all(method in steps for method in gpu.METHODS)
        assert len(set(names)) == len(names)


@pytest.mark.slow
def test_the_smoke_run_has_a_figure_of_everything(tmp_path):
    out = tmp_path / 'smoke.json'
    flags = ['--smoke', f'--out={out}', '--minutes=60']
    environ = os.environ | {'JAX_PLATFORMS': 'cpu'}
    subprocess.run(
        [sys.executable, '-m', 'benchmarks.gpu', *flags],
        cwd=ROOT,
        env=environ,
        check=True,
    )
    found = json.loads(out.read_text())['parts']
    for name, row in found.items():
        if name.startswith('step'):
            assert row['dp_over_nonprivate'] > 0
        if name.startswith('clipping'):
            assert row['speedup_over_naive'] > 0
        if name.endswith('whole'):
            assert row['seconds'] > 0 and row['peak_mib'] > 0
