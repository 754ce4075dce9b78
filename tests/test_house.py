"""The layout holds: who may import whom, and how many things stand in one room.

A room is a folder of `dpaf_jax`, or a module beside the rooms. Imports run one way, so that
whoever reads a room needs to know only the rooms below it.
"""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

from dpaf_jax.training import fingerprint

ROOT = pathlib.Path(__file__).parents[1] / 'dpaf_jax'
MOST = 14  # entries of a room, beside its __init__

RUNTIME = {'runtime'}
CONFIG = {'config'} | RUNTIME
RELEASE = {'networks', 'privacy.plan'} | CONFIG
METHOD = {'training', 'release.samplers', 'networks', 'privacy', 'data'} | CONFIG
# Whatever starts with one of these names may be imported; a room may always import itself.
MAY_IMPORT = {
    'runtime': set(),
    'config': RUNTIME,
    'data': CONFIG,
    'privacy': CONFIG,
    'networks': CONFIG,
    'release': RELEASE,
    'training': {'release.samplers', 'data', 'privacy'} | CONFIG,
    'evaluation': {'networks', 'data', 'release'} | CONFIG,
    'methods': METHOD,
    'verify': {'methods', 'release', 'privacy'} | CONFIG,
    'audit': {'methods'} | METHOD | {'release'},
    'attack': {'release', 'data', 'privacy', 'training.workdir'} | CONFIG,
    'pipeline': {'methods', 'training', 'evaluation', 'release', 'data', 'privacy'}
    | CONFIG,
    'tables': {'release.export', 'training.workdir', 'evaluation.suite'} | RUNTIME,
    'sample': {'release'} | RUNTIME,
    'evaluate': {'evaluation'} | RUNTIME,
    'cli': {'main', 'sample', 'evaluate', 'verify', 'audit', 'attack', 'tables'}
    | RUNTIME,
    'main': {'pipeline', 'training.signals', 'training.workdir', 'privacy.plan'}
    | RUNTIME,
    '__init__': {'pipeline', 'release'} | RUNTIME,
}
SHARED_BY_METHODS = 'adversarial', 'embedding'
BUILT_OF = {'feta': ('dpaf', 'dpgen')}
COLLECTIVES = {
    'psum', 'pmean', 'pmax', 'pmin', 'all_gather', 'all_to_all', 'ppermute',
    'psum_scatter', 'axis_index', 'pmap', 'shard_map',
}  # fmt: skip
MODULES = {
    '.'.join(path.relative_to(ROOT).with_suffix('').parts): path
    for path in ROOT.rglob('*.py')
}


def imports(path: pathlib.Path) -> set[str]:
    """Modules of the package that a file imports, below `dpaf_jax.`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: imports are absolute'
            whole = [f'{node.module}.{alias.name}' for alias in node.names]
            found |= {name if _is_module(name) else node.module for name in whole}
    ours = {name.removeprefix('dpaf_jax.') for name in found if _is_ours(name)}
    return ours - {'dpaf_jax'}


def _is_ours(name: str) -> bool:
    return name == 'dpaf_jax' or name.startswith('dpaf_jax.')


def _is_module(name: str) -> bool:
    short = name.removeprefix('dpaf_jax.')
    return _is_ours(name) and (short in MODULES or f'{short}.__init__' in MODULES)


def within(name: str, places: set[str]) -> bool:
    return any(name == place or name.startswith(f'{place}.') for place in places)


@pytest.mark.parametrize('room', MAY_IMPORT)
def test_imports_run_one_way(room):
    allowed = MAY_IMPORT[room] | {room}
    wrong = {
        f'{module} imports {name}'
        for module, path in MODULES.items()
        if module.partition('.')[0] == room
        for name in imports(path)
        if not within(name, allowed)
    }
    assert not wrong


def test_every_module_is_in_a_room_of_the_table():
    assert {module.partition('.')[0] for module in MODULES} == set(MAY_IMPORT)


def test_what_the_code_hash_leaves_out_is_imported_by_no_training():
    reached, ahead = set(), {'main', '__init__'}
    while ahead:
        reached |= ahead
        names = {name for room in ahead for name in MAY_IMPORT[room]}
        ahead = {name.partition('.')[0] for name in names} - reached
    apart = {name.removesuffix('.py') for name in fingerprint.APART}
    assert not apart & reached and apart | reached == set(MAY_IMPORT)


def test_no_method_imports_another():
    def method(module):
        return module.split('.')[1] if module.startswith('methods.') else ''

    wrong = {
        f'{module} imports {name}'
        for module, path in MODULES.items()
        if method(module) not in ('', '__init__')
        for name in imports(path)
        if method(name)
        not in (
            '',
            method(module),
            *SHARED_BY_METHODS,
            *BUILT_OF.get(method(module), ()),
        )
    }
    assert not wrong


def test_the_third_accountant_imports_nothing_of_ours():
    assert not imports(MODULES['verify.accountant'])


def test_collectives_stand_in_one_file():
    for module, path in MODULES.items():
        if module == 'runtime.parallel':
            continue
        tree = ast.parse(path.read_text(encoding='utf-8'))
        used = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute | ast.Name)
        }
        assert not used & COLLECTIVES, module


@pytest.mark.parametrize(
    'room', sorted({str(p.parent.relative_to(ROOT)) for p in MODULES.values()} - {'.'})
)
def test_a_room_can_be_taken_in_at_a_glance(room):
    entries = {
        path.name
        for path in (ROOT / room).iterdir()
        if path.suffix == '.py' or (path.is_dir() and any(path.glob('*.py')))
    }
    assert len(entries - {'__init__.py'}) <= MOST


def test_one_module_defines_the_flag_that_reads_a_config():
    """A second one, once imported, would take its place in every command of the process."""
    folders = ROOT, ROOT.parent / 'experiments', ROOT.parent / 'benchmarks'
    defines = re.compile(r"DEFINE_\w+\(\s*'config',")
    found = [
        path.name
        for folder in folders
        for path in folder.rglob('*.py')
        if defines.search(path.read_text(encoding='utf-8'))
    ]
    assert found == ['config_flag.py']


LISTED = re.compile(r'^(\w+(?:\.py|/))  ', re.MULTILINE)


@pytest.mark.parametrize('room', ['audit', 'privacy'])
def test_a_room_that_lists_its_modules_lists_all_of_them(room):
    there = {
        path.name if path.suffix == '.py' else f'{path.name}/'
        for path in (ROOT / room).iterdir()
        if not path.name.startswith('__')
    }
    told = ast.get_docstring(ast.parse((ROOT / room / '__init__.py').read_text()))
    assert sorted(LISTED.findall(told)) == sorted(there)


def test_sampling_and_judging_import_no_accountant_and_no_scikit_learn():
    """They are most of what those commands would wait for."""
    code = (
        'import sys, dpaf_jax.sample, dpaf_jax.evaluation.command; print(*sys.modules)'
    )
    ran = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True
    )
    assert not {'dp_accounting', 'sklearn', 'scipy', 'orbax'} & set(ran.stdout.split())


@pytest.mark.parametrize('name', sorted(n for n in MODULES if n.startswith('methods.')))
def test_a_method_finds_its_mechanisms_by_name(name):
    """Not by place: a class histogram may stand in front of them, with less noise."""
    tree = ast.parse(MODULES[name].read_text(encoding='utf-8'))
    by_place = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == 'mechanisms'
        and ast.unparse(node.value).endswith('plan.mechanisms')
    ]
    assert not by_place
