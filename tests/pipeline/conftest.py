"""Finished runs of the main job, and copies of them."""

import shutil

import pytest
import tiny_runs

import dpaf_jax
from dpaf_jax.pipeline.synthesize import Pipeline

KINDS = ('one_shot', pytest.param('canonical', marks=pytest.mark.slow))


@pytest.fixture(params=KINDS)
def run(request) -> tiny_runs.Finished:
    return tiny_runs.finished(request.param)


@pytest.fixture
def one_shot() -> tiny_runs.Finished:
    return tiny_runs.finished('one_shot')


@pytest.fixture
def copied(one_shot, tmp_path):
    """A pipeline in a copy of a finished run, with another config where given."""
    shutil.copytree(one_shot.workdir, tmp_path / 'run')

    def pipeline(**changes):
        config = one_shot.config.copy_and_resolve_references()
        config.update_from_flattened_dict(
            {name.replace('__', '.'): value for name, value in changes.items()}
        )
        return Pipeline(config, tmp_path / 'run')

    return pipeline


@pytest.fixture(scope='module')
def result(tmp_path_factory):
    """A whole run with a fixed entropy: its folder's parent, config and result."""
    folder = tmp_path_factory.mktemp('fixed')
    config = tiny_runs.one_shot(tiny_runs.write_npz(folder / 'images.npz'))
    made = dpaf_jax.synthesize(config, folder / 'a', entropy=tiny_runs.ENTROPY)
    return folder, config, made
