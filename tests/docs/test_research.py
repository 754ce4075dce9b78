"""Research is dated notes of a page, each in the index."""

import pathlib
import re

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / 'docs/research'
NOTES = sorted(FOLDER.glob('2*.md'))
PARTS = 'Question', 'Test', 'Outcome', 'Decision'


def linked(page):
    links = re.findall(r'\]\(([^)#]+)', page.read_text(encoding='utf-8'))
    return [link for link in links if '://' not in link]


def test_the_index_has_every_note_once():
    notes = [each for each in linked(FOLDER / 'index.md') if '/' not in each]
    assert sorted(notes) == [note.name for note in NOTES]


@pytest.mark.parametrize('note', NOTES, ids=lambda note: note.stem)
def test_a_note_is_a_page_of_four_parts(note):
    text = note.read_text(encoding='utf-8')
    assert re.findall(r'^\*\*(\w+)\.\*\*', text, re.MULTILINE) == list(PARTS)
    assert len(text.splitlines()) <= 50
    assert re.match(r'\d{4}-\d\d-\d\d-[a-z]', note.name)


@pytest.mark.parametrize(
    'page', sorted(FOLDER.glob('*.md')), ids=lambda page: page.stem
)
def test_links_lead_somewhere(page):
    assert not [link for link in linked(page) if not (page.parent / link).exists()]
