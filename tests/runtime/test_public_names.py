"""What `import dpaf_jax` offers: found by completion, imported on demand."""

import tiny_runs

import dpaf_jax

SHOWN = """
import sys
import dpaf_jax
assert {*dpaf_jax.__all__} <= {*dir(dpaf_jax)}, dir(dpaf_jax)
assert '__version__' in dir(dpaf_jax)
assert 'jax' not in sys.modules
"""


def test_names_are_shown_without_importing_what_they_stand_for():
    done = tiny_runs.run_python('-c', SHOWN)
    assert (done.returncode, done.stderr) == (0, '')


def test_every_name_is_there():
    for name in dpaf_jax.__all__:
        assert getattr(dpaf_jax, name) is not None
