"""Attacks that users ask about, by the name that the command takes.

Each looks at real images, so what it writes is not covered by any epsilon: it goes into
`nonprivate/attacks/` of a run's folder and nowhere else.
"""

from dpaf_jax.attack import gradient_inversion, membership, memorisation

ATTACKS = {
    'membership': membership,
    'memorisation': memorisation,
    'gradient_inversion': gradient_inversion,
}
