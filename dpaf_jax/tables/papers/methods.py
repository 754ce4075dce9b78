"""Rows that several tables share: methods by the papers' names."""

import math

from dpaf_jax.tables.spec import CLAIMED, DATA_DEPENDENT, NONE, STATED, Row

NO_NOISE = (math.inf,)


def row(label: str, *epsilons: float) -> Row:
    """A method's row; a method that is not here has its printed figures alone."""
    method, how = METHODS.get(label, ('', STATED))
    return Row(label=label, method=method, printed_epsilon=how, epsilons=epsilons)


def real() -> Row:
    """Classifiers that learn from real images: the ceiling."""
    return Row(
        label='real images', method='real', printed_epsilon=NONE, epsilons=NO_NOISE
    )


def recommended(*epsilons: float) -> Row:
    """Ours, which no paper prints."""
    return Row(
        label='recommended.py (ours)',
        method='recommended',
        printed_epsilon='',
        epsilons=epsilons,
    )


METHODS = {
    'DPAF': ('dpaf', CLAIMED),
    'DPGEN': ('dpgen', CLAIMED),
    'DPDM': ('dpdm', STATED),
    'FETA': ('feta', STATED),
    'G-PATE': ('g_pate', DATA_DEPENDENT),
    'DataLens': ('datalens', STATED),
    'PATE-GAN': ('pate_gan', DATA_DEPENDENT),
    'DPBA-WGAN': ('dpba_wgan', CLAIMED),
    'GS-WGAN': ('gs_wgan', CLAIMED),
    'DP-MERF': ('dp_merf', STATED),
    'DP-Kernel': ('dp_kernel', CLAIMED),
    'DP-HP': ('dp_hp', STATED),
    'PEARL': ('pearl', STATED),
    'NDPDC': ('ndpdc', CLAIMED),
    'DP-Sinkhorn': ('dp_sinkhorn', STATED),
    'P3GM': ('p3gm', CLAIMED),
    'DP-GAN': ('dp_gan', STATED),
    'DP-CGAN': ('dp_cgan', STATED),
    'DP-DCGAN': ('dp_gan', STATED),
    'DC-GAN': ('dp_gan', NONE),
}
