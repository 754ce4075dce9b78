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


def test_a_config_can_be_made_by_the_name_that_messages_give():
    script = 'import dpaf_jax; print(dpaf_jax.config.defaults().method)'
    assert tiny_runs.run_python('-c', script).stdout == 'dpaf\n'


def test_results_are_shown_for_people():
    run = tiny_runs.finished('one_shot')
    release = dpaf_jax.load_release(str(run.workdir / 'release'))
    assert repr(release).startswith('<Release of dpaf: 8x8x1, 2 classes, epsilon = ')
    pipeline = dpaf_jax.Pipeline(run.config, run.workdir)
    assert repr(pipeline) == f'<Pipeline of dpaf in {run.workdir}>'
    assert 'guarantee: certified' in repr(pipeline.run('plan'))
    report = {
        'accuracy': {'synthetic': {'cnn': {'mean': 0.5, 'std': 0, 'values': [1]}}}
    }
    assert repr(dpaf_jax.Result(release, report)).endswith('certified>, cnn 0.500>')
