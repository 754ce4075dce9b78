"""Algorithm 1 on small batches learns: what is released is of the class that it says."""

import pytest
import tiny_runs

import dpaf_jax


@pytest.mark.slow  # two minutes on a core
def test_small_class_pure_batches_learn_the_digits_at_epsilon_10(tmp_path):
    """0.86 on 2026-11-27; chance is 0.1, and what `:printed` gives is chance."""
    config = tiny_runs.load_config('digits', 'canonical')
    config.samples.num = 3000
    config.evaluation.seeds, config.evaluation.epochs = 1, 3
    _, report = dpaf_jax.synthesize(config, tmp_path / 'run')
    assert report['privacy']['guarantee'] == 'certified'
    assert report['accuracy']['synthetic']['cnn']['mean'] > 0.5
