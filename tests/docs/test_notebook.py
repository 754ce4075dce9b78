"""The quick-start notebook runs as a new user would run it, at small settings."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / 'docs' / 'quickstart.ipynb'
SMALL = """
WORKDIR = {workdir!r}
GENERATOR_STEPS = 1
NUM_SAMPLES = 200
SEEDS = 1
EPSILONS = (5.0,)
"""


@pytest.fixture
def notebook():
    nbformat = pytest.importorskip('nbformat', reason='pip install ".[notebook]"')
    return nbformat.read(NOTEBOOK, as_version=4)


def parameters(notebook):
    cells = [c for c in notebook.cells if 'parameters' in c.metadata.get('tags', [])]
    assert len(cells) == 1
    return cells[0]


def text_of(notebook) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get('outputs', [])]
    return ''.join(output.get('text', '') for output in outputs)


def pictures_of(notebook) -> int:
    outputs = [output for cell in notebook.cells for output in cell.get('outputs', [])]
    return sum('image/png' in output.get('data', {}) for output in outputs)


def test_is_stored_without_outputs(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == 'code']
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


@pytest.mark.parametrize('start', ['.', 'docs'])
def test_finds_the_repository_from_its_root_and_from_docs(notebook, start, monkeypatch):
    monkeypatch.chdir(NOTEBOOK.parent.parent / start)
    (line,) = [
        line
        for cell in notebook.cells
        for line in cell.source.splitlines()
        if line.startswith('ROOT = ')
    ]
    names = {'Path': Path}
    exec(line, names)
    assert names['ROOT'] == NOTEBOOK.parent.parent


def test_runs_from_plan_to_samples(notebook, tmp_path, monkeypatch):
    nbclient = pytest.importorskip('nbclient', reason='pip install ".[notebook]"')
    pytest.importorskip('ipykernel', reason='pip install ".[notebook]"')
    for name in ('IPYTHONDIR', 'JUPYTER_CONFIG_DIR', 'JUPYTER_RUNTIME_DIR'):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv('XLA_FLAGS', raising=False)  # one device, as on a user's machine
    workdir = tmp_path / 'run'
    # An absolute path stays itself behind `ROOT /`.
    parameters(notebook).source = SMALL.format(workdir=str(workdir))

    nbclient.NotebookClient(
        notebook, timeout=300, resources={'metadata': {'path': str(NOTEBOOK.parent)}}
    ).execute()

    text = text_of(notebook)
    assert 'guarantee: certified' in text
    assert 'cnn' in text
    assert '(100, 16, 16, 1) uint8 [10 10 10 10 10 10 10 10 10 10]' in text
    assert text.count('by RDP') == 1
    assert pictures_of(notebook) == 3
    assert (workdir / 'release' / 'privacy.json').is_file()
    assert (workdir / 'epsilon_5' / 'plan.json').is_file()
