"""Where images lie decides which program runs: a run keeps to what it found first."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax.runtime import memory
from dpaf_jax.training import input_pipeline
from dpaf_jax.training.input_pipeline import Feed


def test_the_memory_of_a_container_is_what_counts(tmp_path, monkeypatch):
    limits = [tmp_path / name for name in ('memory.max', 'absent', 'none')]
    limits[0].write_text('1000000\n')
    limits[2].write_text('max\n')
    monkeypatch.setattr(memory, 'MEMORY_LIMITS', limits)
    devices = jax.local_devices()[:2]
    assert input_pipeline.device_memory(devices) == 500_000
    limits[0].unlink()
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
