"""Finished runs of tables without training: the files that a table reads of each."""

import pathlib

import numpy as np

from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.export import write_npz
from dpaf_jax.runtime.files import write_json, write_text
from dpaf_jax.tables.runs import Run, Setup
from dpaf_jax.tables.scales import SCALES


def setup(out: pathlib.Path, scale: str = 'cpu') -> Setup:
    """With MNIST and Fashion-MNIST there, in name."""
    data = out / 'given'
    data.mkdir(parents=True, exist_ok=True)
    for name in ('mnist.npz', 'fashion_mnist.npz'):
        (data / name).touch()
    return Setup(scale, SCALES[scale], out / 'tables', data)


def finish(
    run: Run,
    accuracy: float,
    distance: float = 50.0,
    best: float | None = None,
    **fidelity: float,
) -> None:
    """Writes what the run would have left; `best`: in its best epoch on the test images."""
    published = run.settings['privacy.guarantee'] == 'as_published'
    words = 'none (as published: its proof fails)' if published else CERTIFIED
    write_json(run.workdir.release / 'privacy.json', {'guarantee': words})
    always = {'fd_efficientnet_lite0': distance, 'precision': 0.5, 'recall': 0.25}
    found = {'mean': accuracy} | ({'legacy_max': {'mean': best}} if best else {})
    content = {
        'accuracy': {'synthetic': {'cnn': found, 'datalens_cnn': found}},
        'fidelity': {**always, **fidelity, 'num_real': 100},
    }
    write_json(run.workdir.evaluation, content)
    classes = run.config.data.num_classes
    labels = np.arange(4 * classes) % classes
    images = np.full((len(labels), 8, 8, 1), 20, np.uint8)
    images += (labels * 20).astype(np.uint8)[:, None, None, None]
    write_npz(run.workdir.samples, images, labels)
    write_text(run.workdir.report, '{}')
