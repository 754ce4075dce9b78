"""The tutorials that are notebooks run as a new user would run them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / 'docs' / 'tutorials'
NOTEBOOK = TUTORIALS / 'first_release.ipynb'
ANATOMY = TUTORIALS / 'anatomy.ipynb'
COMPARING = TUTORIALS / 'comparing_methods.ipynb'
LARGEST = 300_000  # bytes of a notebook with its pictures
SMALL = """
WORKDIR = {workdir!r}
GENERATOR_STEPS = 1
NUM_SAMPLES = 200
SEEDS = 1
EPSILONS = (5.0,)
"""


def read(path):
    nbformat = pytest.importorskip('nbformat', reason='pip install ".[notebook]"')
    return nbformat.read(path, as_version=4)


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == 'code']


@pytest.fixture
def notebook():
    return read(NOTEBOOK)


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


@pytest.mark.parametrize(
    'path', [NOTEBOOK, ANATOMY, COMPARING], ids=lambda path: path.stem
)
def test_shows_what_it_printed_and_nothing_of_the_machine(path):
    stored = read(path)
    assert path.stat().st_size < LARGEST
    outputs = [output for cell in code_of(stored) for output in cell.outputs]
    assert {o.output_type for o in outputs} == {'stream', 'execute_result'}
    assert {o.name for o in outputs if o.output_type == 'stream'} == {'stdout'}
    assert str(ROOT.anchor) + 'work' not in text_of(stored)
    for cell in code_of(stored):
        assert bool(cell.outputs) == prints(cell.source), cell.source


def prints(source: str) -> bool:
    """Whether a cell prints, or ends with a picture."""
    last = source.splitlines()[-1]
    return bool(re.search(r'\bprint\(|synthesize\(', source)) or last.startswith(
        ('Image.', 'sample_grid(')
    )


@pytest.mark.parametrize(
    'path', [NOTEBOOK, ANATOMY, COMPARING], ids=lambda path: path.stem
)
@pytest.mark.parametrize('start', ['.', 'docs', 'docs/tutorials'])
def test_finds_the_repository_from_everywhere_in_it(path, start, monkeypatch):
    monkeypatch.chdir(ROOT / start)
    (line,) = [
        line
        for cell in code_of(read(path))
        for line in cell.source.splitlines()
        if line.startswith('ROOT = ')
    ]
    names = {'Path': Path}
    exec(line, names)
    assert names['ROOT'] == ROOT


@pytest.mark.slow
def test_the_anatomy_holds_on_digits(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names: dict = {}
    for cell in code_of(read(ANATOMY)):
        exec(cell.source, names)

    text = capsys.readouterr().out
    moves = re.findall(r'moved by ([\d.]+) of at most ([\d.]+)', text)
    assert len(moves) == 3
    assert all(0.9 * float(most) < float(moved) <= float(most) for moved, most in moves)
    spent = re.findall(
        r'epsilon +([\d.]+): noise multiplier +[\d.]+, spends ([\d.]+)', text
    )
    assert len(spent) == 3
    assert all(0.99 * float(e) < float(s) <= float(e) for e, s in spent)


@pytest.mark.slow
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
