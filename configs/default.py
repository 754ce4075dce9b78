"""Every field of a run at its default, as DPAF prints it; other configs are deltas of this.

A field, its default, its range and its meaning stand once, in
docs/reference/fields.md. Values that the papers print are theirs
(batch 24, mu = 8, n_critic = 3, top 90 %, z of 100 dimensions, budgets (0.1, rest, 0.1)); what
they leave open is ours and is listed with its reason in docs/explanation/algorithm.md.
Any field can be replaced on the command line: --config.privacy.epsilon=1.
"""

from ml_collections import ConfigDict

from dpaf_jax.config import defaults


def get_config() -> ConfigDict:
    """Returns the default configuration: certified DPAF on the embedded digits."""
    return defaults()
