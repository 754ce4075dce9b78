"""The smallest runs that still have every part: shared by the tests of the package."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np
from ml_collections import ConfigDict

from configs import default
from dpaf_jax import methods
from dpaf_jax.audit import white_box as mechanisms
from dpaf_jax.audit.findings import run_checks
from dpaf_jax.audit.target import AuditTarget
from dpaf_jax.config import Config, from_config_dict
from dpaf_jax.data import Dataset, Manifest
from dpaf_jax.data.manifest import Settings
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.privacy import accounting, published
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run

NUM_EXAMPLES = 40
ENTROPY = bytes(range(32))


def config_dict(**fields: Any) -> ConfigDict:
    """Three classes of 8 x 8 images, networks of a few maps, epochs of a few steps.

    Args:
        fields: replacements, '.' written as '__': dpaf__conv2__gradient='group'.
    """
    config = default.get_config()
    config.data.image_size = 8
    config.data.num_classes = 3
    config.networks.layers = 'C1-C1-x'
    config.networks.update(
        {'width': 2, 'max_width': 3, 'fc_width': 3, 'generator_width': 2, 'z_dim': 3}
    )
    dpaf_ = config.dpaf
    dpaf_.batch_size, dpaf_.asymmetry, dpaf_.n_critic = 4, 2, 2
    dpaf_.epochs = 0.2
    dpaf_.classifier.batch_size, dpaf_.classifier.num_groups = 8, 4
    dpaf_.classifier.epochs = 0.5
    dpaf_.conv2.batch_size, dpaf_.conv2.num_groups = 8, 4
    dpaf_.generator.batch_size = 6
    for name in ('dp_merf', 'dp_kernel', 'dp_hp', 'pearl'):
        config[name].update({'generator_steps': 4, 'batch_size': 10})
    for name in ('dp_merf', 'dp_kernel', 'pearl'):
        config[name].features = 12
    config.dp_sinkhorn.update({'generator_steps': 4, 'batch_size': 8})
    config.p3gm.update({'dims': 4, 'width': 3, 'batch_size': 8, 'steps': 4})
    config.dp_hp.update({'sum_order': 2, 'product_order': 2, 'products': 3})
    config.dp_gan.update({'batch_size': 8, 'width': 2, 'fc_width': 4})
    config.dp_gan.update({'discriminator_steps': 4, 'generator_steps': 2})
    config.dp_gan.generator_batch_size = 6
    config.g_pate.update({'teachers': 8, 'batch_size': 3, 'width': 3, 'fc_width': 3})
    config.g_pate.update({'steps': 4, 'fakes': 6, 'projections': 2, 'bins': 4})
    config.g_pate.update({'threshold': 0.5, 'cell': 1})
    config.ndpdc.update({'aggregates': 3, 'batch_size': 8, 'width': 2, 'depth': 1})
    config.ndpdc.update({'images_per_class': 2, 'parts': 2, 'steps': 4})
    config.datalens.update({'top_k': 5, 'threshold': 0.3})
    config.pate_gan.update({'copies': 2, 'remembered': 2, 'width': 4})
    config.pate_gan.update({'student_steps': 2, 'batch_size': 6})
    small = (
        'batch_size',
        'width',
        'fc_width',
        'discriminator_steps',
        'generator_steps',
    )
    for name in (*small, 'generator_batch_size'):
        for method in ('dp_cgan', 'dpba_wgan', 'gs_wgan'):
            config[method][name] = config.dp_gan[name]
    config.dpgen.update(
        {'width': 2, 'max_width': 3, 'num_levels': 3, 'batch_size': 8, 'microbatch': 4}
    )
    config.dpgen.update({'multiplicity': 2, 'steps': 4, 'candidates': 3, 'scales': 1})
    config.dpgen.labeller_steps = 4
    config.run.devices = 1
    config.samples.num = 12
    config.evaluation.seeds = config.evaluation.epochs = 1
    config.evaluation.fidelity_images = 0
    if fields.get('privacy__guarantee') == 'as_published':
        # At such sampling rates the paper's theorem states no epsilon of 0.1.
        config.privacy.budgets = '30%,rest,30%'
    config.update_from_flattened_dict(
        {name.replace('__', '.'): value for name, value in fields.items()}
    )
    return config


def config(**fields: Any) -> Config:
    """`config_dict` as typed objects."""
    return from_config_dict(config_dict(**fields))


ONE_SHOT = {
    'networks__label_injection': 'none',
    'dpaf__batches': 'class_pure',
    'dpaf__batch_size': 0,
    'dpaf__epochs': 1.0,
    'dpaf__n_critic': 1,
    'dpaf__generator_steps': 4,
    'dpaf__taps': 'count,pixels,conv1,conv2',
    'dpaf__classifier__private': 'none',
    'dpaf__conv2__gradient': 'none',
    'dpaf__generator__loss_single': 0.0,
    'dpaf__generator__loss_match': 1.0,
}

LABELLED = {
    'dpaf__classifier__private': 'labeller',
    'dpaf__conv2__gradient': 'none',
    'dpaf__generator__loss_single': 0.0,
    'dpaf__generator__loss_match': 1.0,
}


def plan(config: Config, noise_multiplier: float = 1.0) -> PrivacyPlan:
    """The plan of a config with a given noise, without the accountant's seconds.

    Every other number is the method's own. For the real one: the method's `plan(config, 40)`.
    """

    def settle(mechanism: Any, *_: Any) -> Any:
        return dataclasses.replace(mechanism, noise_multiplier=noise_multiplier)

    def settle_together(mechanisms: Any, *_: Any) -> Any:
        scales = [m.noise_multiplier * noise_multiplier for m in mechanisms]
        return [
            dataclasses.replace(m, noise_multiplier=s)
            for m, s in zip(mechanisms, scales, strict=True)
        ]

    most = config.privacy.epsilon * (1 - config.data.noisy_prior)
    fast = {
        'calibrate': settle,
        'calibrate_together': settle_together,
        'epsilon_pld': lambda event, delta: min(1.0, most),
        'epsilon_rdp': lambda event, delta: 2.0,
    }
    claimed = {
        'calibrate': lambda mechanisms, *_: [settle(m) for m in mechanisms],
        'epsilon': lambda mechanisms, delta: 3.0,
    }
    with (
        mock.patch.multiple(accounting, **fast),
        mock.patch.multiple(published, **claimed),
    ):
        return methods.plan(config, NUM_EXAMPLES)


def dataset(config: Config, num_examples: int = NUM_EXAMPLES, seed: int = 0) -> Dataset:
    """Random pixels, all of one grey for a tenth of the images; labels in turn."""
    rng = np.random.default_rng(seed)
    data = config.data
    shape = (num_examples, data.image_size, data.image_size, data.channels)
    images = rng.integers(256, size=shape, dtype=np.uint8)
    images[::10] = images[::10, :1, :1]
    labels = np.arange(num_examples, dtype=np.int32) % data.num_classes
    manifest = Manifest(
        source=data.source,
        image_size=data.image_size,
        channels=data.channels,
        num_classes=data.num_classes,
        class_names=tuple(map(str, range(data.num_classes))),
        num_examples=num_examples,
        num_present=num_examples,
        num_test=num_examples,
        checksum='0' * 64,
        settings=Settings.of(data),
    )
    test = images.copy(), labels.copy()
    return Dataset(images, labels, np.arange(num_examples), *test, manifest)


class Untouchable:
    """Private images that fail whoever looks at them."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f'a private image was asked for {name}')

    def __len__(self) -> int:
        raise AssertionError('private images were counted')

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError('a private image was read')


def keys(entropy: bytes = ENTROPY, fingerprint: str = 'f' * 64) -> RunKeys:
    """Keys of a fixed entropy."""
    return RunKeys(entropy, fingerprint)


def run(
    workdir: pathlib.Path, config: Config, devices: int = 1, sigma: float = 1.0
) -> Run:
    """A run on the first devices, with `plan`'s noise, over `dataset`."""
    return Run(
        workdir=workdir,
        config=config,
        plan=plan(config, sigma),
        data=dataset(config),
        keys=keys(),
        devices=jax.local_devices()[:devices],
    )


def audit_failures(
    target: AuditTarget,
    plan: PrivacyPlan,
    repetitions: int = 300,
    samples: int = 100_000,
) -> set[str]:
    """Kinds of check that a short audit of a mechanism does not pass."""
    with mock.patch.object(mechanisms, 'SAMPLES', samples):
        checks = mechanisms.MechanismAudit(target, plan.delta, repetitions, 11).checks()
        findings = run_checks(checks)
    return {finding.kind for finding in findings if not finding.passed}


@contextlib.contextmanager
def quick_compilation() -> Iterator[None]:
    """XLA optimises less: for tests that compile much and compute next to nothing."""
    before = jax.config.read('jax_disable_most_optimizations')
    jax.config.update('jax_disable_most_optimizations', True)
    yield
    jax.config.update('jax_disable_most_optimizations', before)


def state(part: Any, seed: int = 0, scale: float = 1.0) -> Any:
    """A state of a method's static part with random parameters, compiling nothing.

    Args:
        part: a `Classifier`, `Gan` or `ScoreMatching`: its `init` gives the shapes.
        seed: of the parameters.
        scale: their standard deviation.
    """
    rng = np.random.default_rng(seed)

    def normal(leaf: Any) -> np.ndarray:
        return (scale * rng.normal(size=leaf.shape)).astype(np.float32)

    def zeros(leaf: Any) -> np.ndarray:
        return np.zeros(leaf.shape, leaf.dtype)

    more = (None,) if isinstance(part, Gan) else ()
    shapes = jax.eval_shape(lambda key: part.init(key, *more), jax.random.key(0))
    made = jax.tree.map(zeros, shapes)
    made = made._replace(params=jax.tree.map(normal, dict(shapes.params)))
    if isinstance(part, Gan):
        params = jax.tree.map(normal, shapes.generator.params)
        generator = made.generator._replace(params=params, ema_params=params)
        latest = rng.normal(size=shapes.latest.shape).astype(np.float32)
        made = made._replace(generator=generator, latest=latest)
    return made


def assert_close(one: Any, two: Any, rtol: float = 1e-3, atol: float = 1e-4) -> None:
    """Two trees are the same up to rounding."""
    leaves = jax.tree_util.tree_leaves_with_path(one)
    for (path, a), b in zip(leaves, jax.tree.leaves(two), strict=True):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def over_devices(query: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The sum over devices of what each has to say, compiled."""
    return parallel.pmapped(
        lambda *args: parallel.total(query(*args)), jax.local_devices()[:number]
    )


def vector(sums: Any) -> np.ndarray:
    """A query's sums as one float64 vector; an `ExactSum` loses nothing by it."""
    spacing = 1.0
    if isinstance(sums, ExactSum):
        sums, spacing = sums.units(), sums.spacing
    leaves = [np.ravel(leaf).astype(np.float64) for leaf in jax.tree.leaves(sums)]
    return spacing * np.concatenate(leaves)


def batch(
    images: np.ndarray, labels: np.ndarray, is_padding: np.ndarray | None = None
) -> ClipBatch:
    """Singletons [U, 1, ...], or groups where arrays have a member axis already.

    Indices are in order.
    """
    if labels.ndim == 1:
        images, labels = images[:, None], labels[:, None]
    if is_padding is None:
        is_padding = np.zeros(labels.shape, bool)
    index = np.arange(labels.size, dtype=np.int32).reshape(labels.shape)
    return ClipBatch(images, labels, is_padding.reshape(labels.shape), index)
