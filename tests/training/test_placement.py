"""Where images lie decides which program runs: a run keeps to what it found first."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax.runtime import memory
from dpaf_jax.training import input_pipeline
from dpaf_jax.training.input_pipeline import Feed


@pytest.mark.parametrize(
    ('lines', 'limit'),
    [
        ('0::/\n', 'memory.max'),  # a container, or no group
        ('', 'memory/memory.limit_in_bytes'),
        ('0::/slurm/job_7/step_0\n', 'slurm/job_7/memory.max'),
        ('5:cpu:/a\n4:memory:/slurm/job_7\n', 'memory/slurm/memory.limit_in_bytes'),
    ],
)
def test_the_memory_of_a_container_or_a_job_is_what_counts(
    tmp_path, monkeypatch, lines, limit
):
    groups, own = tmp_path / 'groups', tmp_path / 'cgroup'
    limited = groups / limit
    limited.parent.mkdir(parents=True)
    limited.write_text('1000000\n')
    own.write_text(lines)
    monkeypatch.setattr(memory, 'GROUPS', groups)
    monkeypatch.setattr(memory, 'OWN_GROUPS', own)
    devices = jax.local_devices()[:2]
    assert input_pipeline.device_memory(devices) == 500_000
    limited.write_text('max\n')
    assert input_pipeline.device_memory(devices) > 2**20


@pytest.mark.parametrize(
    ('shape', 'number'),
    [
        ((28, 28, 1), 1024),
        ((64, 64, 3), 256),
        ((128, 128, 3), 64),
        ((4096, 4096, 1), 1),
    ],
)
def test_of_large_images_fewer_are_read_at_once(shape, number):
    assert input_pipeline.at_once(np.broadcast_to(np.uint8(0), (9, *shape))) == number


def small(params, images):
    return images[:, ::2, ::2].astype('float32')


def test_a_phase_that_has_ended_reads_no_data(tmp_path):
    run = tiny.run(tmp_path, tiny.config())
    Feed(dataclasses.replace(run, data=tiny.Untouchable()))


@pytest.mark.parametrize('features', [None, small])
def test_a_run_that_goes_on_with_other_memory_keeps_its_program(
    tmp_path, monkeypatch, features
):
    run = tiny.run(tmp_path, tiny.config(method='dp_merf'))
    (tmp_path / 'private').mkdir(exist_ok=True)
    other = dataclasses.replace(run, keys=tiny.keys(fingerprint='e' * 64))
    for first, then in ((2**40, 0), (0, 2**40)):
        run, other = other, run  # keys that have found nothing yet
        monkeypatch.setattr(input_pipeline, 'device_memory', lambda _, m=first: m)
        begun = Feed(run, features)
        assert bool(begun.data) == (first > 0)
        monkeypatch.setattr(input_pipeline, 'device_memory', lambda _, m=then: m)
        resumed = Feed(run, features)
        assert bool(resumed.data) == (first > 0)
        assert begun._records['images'].shape == resumed._records['images'].shape
