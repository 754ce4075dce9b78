"""Epsilon, noise, capacity and shares: the arithmetic behind a plan."""

from dpaf_jax.privacy.accounting.calibration import (
    MAX_NOISE_MULTIPLIER,
    MIN_NOISE_MULTIPLIER,
    LittleNoiseError,
    calibrate,
    calibrate_together,
)
from dpaf_jax.privacy.accounting.capacity import (
    capacity_for,
    fit_capacity,
    overflow_delta,
    overflow_probability,
)
from dpaf_jax.privacy.accounting.epsilon import (
    NEIGHBORING,
    ORDERS,
    coarseness,
    epsilon_pld,
    epsilon_rdp,
    pld_accountant,
    pld_grid,
    rdp_accountant,
    round_up,
    spent_so_far,
)
from dpaf_jax.privacy.accounting.shares import shares_of, smaller

__all__ = [
    'MAX_NOISE_MULTIPLIER',
    'MIN_NOISE_MULTIPLIER',
    'NEIGHBORING',
    'ORDERS',
    'LittleNoiseError',
    'calibrate',
    'calibrate_together',
    'capacity_for',
    'coarseness',
    'epsilon_pld',
    'epsilon_rdp',
    'fit_capacity',
    'overflow_delta',
    'overflow_probability',
    'pld_accountant',
    'pld_grid',
    'rdp_accountant',
    'round_up',
    'shares_of',
    'smaller',
    'spent_so_far',
]
