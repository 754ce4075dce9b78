"""G-PATE."""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(data: str = 'digits') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ...; or `:table`.

    A table needs --config.data.source=table:<csv or npz>, data.columns with their public
    bounds, data.label and data.num_classes on the command line.
    """
    if data == 'table':
        return table()
    config = variants.on(data, 'g_pate')
    g_pate = config.g_pate
    if data == 'digits':
        g_pate.batch_size = 5  # a whole part
    else:
        g_pate.teachers = 2000
        g_pate.batch_size = 8
        g_pate.steps = 500
    return config


def table() -> ConfigDict:
    """The paper's tabular setting: epsilon 1, of which 0.01 for the class distribution."""
    config = default.get_config()
    config.method = 'g_pate'
    config.data.num_classes = 2
    config.data.image_size = 4  # not read
    config.privacy.epsilon = 1.0
    config.privacy.budgets = '0.01,rest'
    config.samples.num = 10000
    config.g_pate.noisy_prior = True
    config.g_pate.projections = 5
    return config
