"""digits: the 1797 real 8 x 8 digits inside scikit-learn; no download."""

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources.attributes import check_attribute
from dpaf_jax.data.sources.base import Source, counting_names

_WHITE = 16  # the data set's own scale is 0 .. 16


def open_source(path: str, config: DataConfig) -> Source:
    """Lists the digits. There is no test split; a record's id is its index.

    Args:
        path: unused.
        config: the data section of the config.

    Raises:
        UserError: for an attribute, which digits do not have.
    """
    # Here, because it takes a second that the other sources need not spend.
    from sklearn.datasets import load_digits

    check_attribute(config)
    data = load_digits()
    images = np.rint(data.images * (255 / _WHITE)).astype(np.uint8)
    return Source(
        where='digits',
        class_names=counting_names(10),
        labels=data.target.astype(np.int64),
        record_id=str,
        is_test=None,
        contents=lambda: iter(images),
    )
