"""The site: Markdown pages, notebooks as they are stored, the API from docstrings.

`make docs` builds it. Nothing is executed: notebooks show the outputs that they hold.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from dpaf_jax.runtime.version import VERSION  # noqa: E402

project = 'dpaf_jax'
author = 'dpaf_jax contributors'
version = release = VERSION

extensions = [
    'myst_nb',
    'sphinx.ext.autodoc',
    'sphinx.ext.napoleon',
    'fields',  # docs/fields.py
]
exclude_patterns = ['_build']
nitpicky = False  # types of other libraries are named, not linked
smartquotes_action = 'D'  # dashes alone: 'digits' is a value
default_role = 'literal'  # docstrings write `code` as Markdown does
highlight_language = 'none'  # commands and outputs; examples say that they are Python

nb_execution_mode = 'off'
myst_heading_anchors = 4
myst_enable_extensions = ['attrs_inline', 'colon_fence', 'deflist']

autodoc_member_order = 'bysource'
autodoc_typehints = 'none'  # the signature has them
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = 'furo'
html_title = f'dpaf_jax {VERSION}'
html_static_path = ['_static']
html_css_files = ['site.css']
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def _plain_stars(app, what, name, obj, options, lines) -> None:
    """Names such as conv2* are no emphasis."""
    lines[:] = [line.replace('*', r'\*') for line in lines]


def setup(app) -> None:
    """Sphinx's entry."""
    app.connect('autodoc-process-docstring', _plain_stars, priority=400)
