"""What the documentation points at exists."""

import ast
import importlib
import pathlib
import re

import pytest
import yaml

from dpaf_jax.config import defaults
from dpaf_jax.runtime.version import VERSION

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob('*.md'), *(ROOT / 'docs').rglob('*.md'))
    if '_build' not in path.parts
)
PRIVACY = ROOT / 'docs' / 'explanation' / 'privacy.md'
CODE = r'((?:dpaf_jax|tests|configs|experiments|launch)/[\w/.]*\w)'


def names(path):
    """Every class, function and method of a file, by its own name."""
    tree = ast.parse((ROOT / path).read_text(encoding='utf-8'))
    kinds = ast.ClassDef | ast.FunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def found_by_pytest(path):
    """What pytest finds in a file, as its command line names it."""
    body = ast.parse((ROOT / path).read_text(encoding='utf-8')).body
    made = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    for group in (node for node in body if isinstance(node, ast.ClassDef)):
        methods = (node for node in group.body if isinstance(node, ast.FunctionDef))
        made |= {group.name, *(f'{group.name}::{node.name}' for node in methods)}
    return made


@pytest.mark.parametrize('page', PAGES)
def test_every_file_that_is_named_exists(page):
    text = (ROOT / page).read_text(encoding='utf-8')
    named = set(re.findall(rf'`{CODE}(?:::\w+)?`', text))
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize('page', PAGES)
def test_every_link_leads_to_a_file(page):
    text = (ROOT / page).read_text(encoding='utf-8')
    links = re.findall(r'\]\(([\w/.-]+)(?:#[^)]*)?\)', text)
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert not missing


@pytest.mark.parametrize('page', PAGES)
def test_every_file_of_the_package_is_named_in_full(page):
    """`clipping.py` alone would leave open where it is; a config is known by its name."""
    if page == 'CHANGELOG.md':  # says what was
        return
    text = (ROOT / page).read_text(encoding='utf-8')
    short = set(re.findall(r'`([a-z_0-9]+\.py)(?::[^`]*)?`', text))
    known = {path.name for path in (ROOT / 'configs').glob('*.py')}
    folders = set(re.findall(r'`(dpaf_jax/[\w/]+/)`', text))
    assert not [
        name
        for name in short - known
        if not any((ROOT / folder / name).exists() for folder in folders)
    ]


@pytest.mark.parametrize('page', PAGES)
def test_every_test_that_is_named_exists(page):
    text = (ROOT / page).read_text(encoding='utf-8')
    for path, name in re.findall(r'`(tests/[\w/]+\.py)::([\w:]+)`', text):
        assert name in found_by_pytest(path), f'{page}: {path}::{name}'


def test_every_claim_of_the_privacy_page_points_at_code_and_tests():
    text = PRIVACY.read_text(encoding='utf-8')
    found = re.findall(
        r'`(\w+)(?:\.(\w+))?`(?:, `(\w+)`)? in\s`(dpaf_jax/[\w/]+\.py)`', text
    )
    assert len(found) > 10
    for *symbols, path in found:
        assert {s for s in symbols if s} <= names(path), f'{symbols} in {path}'
    lemmas = re.split(r'\*\*(?:Lemma|Theorem)', text)[1:]
    assert len(lemmas) == 9
    numbers = re.findall(r'\*\*Lemma (\d+) ', text)
    assert numbers == [str(n) for n in range(1, len(numbers) + 1)]
    for number, lemma in enumerate(lemmas, start=1):
        body = lemma.split('\n## ')[0]
        assert 'dpaf_jax/' in body and 'tests/' in body, f'statement {number}'


def test_links_within_the_privacy_page_lead_to_headings():
    text = PRIVACY.read_text(encoding='utf-8')
    headings = re.findall(r'^#+ (.+)$', text, re.MULTILINE)
    anchors = {
        re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-')
        for heading in headings
    }
    for anchor in re.findall(r'\]\(#([^)]+)\)', text):
        assert anchor in anchors, anchor


def test_every_flag_of_a_command_is_on_the_page_of_commands():
    page = (ROOT / 'docs' / 'reference' / 'commands.md').read_text(encoding='utf-8')
    sections = dict(
        re.findall(r'## `python -m dpaf_jax\.(\w+)`\n(.*?)(?=\n## )', page, re.DOTALL)
    )
    assert set(sections) == {
        'main', 'sample', 'evaluate', 'tables', 'verify', 'audit', 'attack'
    }  # fmt: skip
    for command, section in sections.items():
        home = ROOT / 'dpaf_jax' / command
        file = home / '__main__.py' if home.is_dir() else home.with_suffix('.py')
        source = file.read_text(encoding='utf-8')
        flags = re.findall(r"flags\.DEFINE_\w+\(\s*'(\w+)'", source)
        assert flags
        assert not [flag for flag in flags if f'| `--{flag}` |' not in section], command


def test_the_page_of_fields_has_every_field(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / 'docs')
    page = importlib.import_module('fields').page(anchored=True)
    leaves = ['.'.join(path) for path in walk(defaults().to_dict())]
    assert len(leaves) > 150
    assert not [name for name in leaves if f'id="{name}"' not in page]


def walk(fields, path=()):
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from walk(value, (*path, name))
        else:
            yield (*path, name)


def test_the_software_and_its_citation_are_of_one_version():
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text(encoding='utf-8'))
    assert citation['version'] == VERSION
