"""What the documentation points at exists."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob('*.md'), *(ROOT / 'docs').glob('*.md'))
)
CODE = r'((?:dpaf_jax|tests|configs|experiments|launch)/[\w/.]*\w)'


def names(path):
    """Every class, function and method of a file, by its own name."""
    tree = ast.parse((ROOT / path).read_text(encoding='utf-8'))
    kinds = ast.ClassDef | ast.FunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize('page', PAGES)
def test_every_file_that_is_named_exists(page):
    text = (ROOT / page).read_text(encoding='utf-8')
    named = set(re.findall(rf'`{CODE}(?:::\w+)?`', text))
    named |= {n for n in re.findall(r'\]\(([\w/.-]+)\)', text) if '://' not in n}
    base = [ROOT, (ROOT / page).parent]
    missing = [n for n in named if not any((b / n).exists() for b in base)]
    assert not missing


@pytest.mark.parametrize('page', PAGES)
def test_every_test_that_is_named_exists(page):
    text = (ROOT / page).read_text(encoding='utf-8')
    for path, name in re.findall(r'`(tests/[\w/]+\.py)::(\w+)`', text):
        assert name in names(path), f'{page}: {path}::{name}'


def test_every_claim_of_the_privacy_page_points_at_code_and_tests():
    text = (ROOT / 'docs' / 'privacy.md').read_text(encoding='utf-8')
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
    text = (ROOT / 'docs' / 'privacy.md').read_text(encoding='utf-8')
    headings = re.findall(r'^#+ (.+)$', text, re.MULTILINE)
    anchors = {
        re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-')
        for heading in headings
    }
    for anchor in re.findall(r'\]\(#([^)]+)\)', text):
        assert anchor in anchors, anchor
