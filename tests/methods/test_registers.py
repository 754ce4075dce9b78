"""Every register of methods has all of them, and no other."""

import dataclasses
import pathlib

import pytest

from dpaf_jax.audit.session import AUDITS
from dpaf_jax.config import METHOD_SECTIONS, Config
from dpaf_jax.config.fields import ABSENT
from dpaf_jax.methods import METHODS
from dpaf_jax.release.samplers.registry import SAMPLERS
from dpaf_jax.tables.scales import FORMS

ROOT = pathlib.Path(__file__).parents[2]
PAGES = {'dpaf': 'algorithm'}  # named otherwise than their method
# Forms of a method that have a row of their own, and real images.
MORE_FORMS = {'dpaf_printed', 'dpaf_printed_certified', 'recommended', 'real'}
REGISTERS = {
    'config.schema.METHOD_SECTIONS': METHOD_SECTIONS,
    'sections of config.schema.Config': [
        field.name for field in dataclasses.fields(Config) if field.default is ABSENT
    ],
    'release.samplers.registry.SAMPLERS': SAMPLERS,
    'audit.session.AUDITS': AUDITS,
    'tables.scales.FORMS': [name for name in FORMS if name not in MORE_FORMS],
}


@pytest.mark.parametrize('register', REGISTERS)
def test_every_register_has_every_method(register):
    names = list(REGISTERS[register])
    missing, unknown = set(METHODS) - set(names), set(names) - set(METHODS)
    assert not missing, f'{register} lacks {sorted(missing)}'
    assert not unknown, f'{register} has {sorted(unknown)}, which methods.METHODS lacks'
    assert len(names) == len(METHODS), f'{register} names a method twice'


def test_the_readme_names_every_method():
    told = (ROOT / 'README.md').read_text(encoding='utf-8')
    assert not [method for method in METHODS if f'`{method}`' not in told]


@pytest.mark.parametrize('page', ['docs/index.md', 'docs/howto/methods.md'])
def test_readers_find_the_page_of_every_method(page):
    told = (ROOT / page).read_text(encoding='utf-8')
    for method in METHODS:
        name = PAGES.get(method, method)
        assert (ROOT / f'docs/explanation/{name}.md').is_file(), method
        assert f'explanation/{name}' in told, (
            f'{page} does not name the page of {method}'
        )
