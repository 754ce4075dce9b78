"""Private images: decoded once into uint8 arrays on disk, then mapped into memory."""

from dpaf_jax.data.dataset import Dataset, check_arrays, load
from dpaf_jax.data.manifest import Manifest, read_manifest
from dpaf_jax.data.prepare import num_listed, prepare

__all__ = [
    'Dataset',
    'Manifest',
    'check_arrays',
    'load',
    'num_listed',
    'prepare',
    'read_manifest',
]
