"""GAN-Leaks, full black-box: a record near a synthetic image is taken for a member.

Chen, Yu, Zhang and Fritz 2020, sections 5.2 (distance to the nearest sample) and 5.5
(calibration: how near it is to reference images that nobody trained on).
"""

import numpy as np

from dpaf_jax.attack.distances import nearest


def scores(
    records: np.ndarray, synthetic: np.ndarray, reference: np.ndarray
) -> dict[str, np.ndarray]:
    """Scores of records, larger for members.

    Args:
        records: [n, H, W, C] uint8.
        synthetic: [m, H, W, C] uint8.
        reference: [r, H, W, C] uint8, real images that are neither members nor records.

    Returns:
        {name: [n] float32}: 'gan-leaks' and 'gan-leaks calibrated'.
    """
    plain = nearest(records, synthetic).distance
    usual = nearest(records, reference).distance
    return {'gan-leaks': -plain, 'gan-leaks calibrated': usual - plain}
