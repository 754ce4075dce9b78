"""SIN: simplified instance normalisation, which bounds what DPAGG sums.

Source: DPAF (conference version) section 3.2, equations 1 and 2.
"""

import jax
import jax.numpy as jnp

ETA = 1e-5  # the published SIN divides by a standard deviation that may be 0


def simplified_instance_norm(maps: jax.Array) -> jax.Array:
    """Centres and scales every feature map; no learnt scale or centre.

    Args:
        maps: [..., p, p, m] float32, m maps of p x p.

    Returns:
        (x - mean) / sqrt(var + ETA) over each map: its l2 norm is at most p, so that of
        all m maps is at most sqrt(m) * p.

    Example:
        >>> maps = jax.random.normal(jax.random.key(0), (4, 4, 9)) * 1e3  # p = 4, m = 9
        >>> round(float(jnp.linalg.norm(simplified_instance_norm(maps))), 3)
        12.0
        >>> float(jnp.abs(simplified_instance_norm(jnp.ones((4, 4, 9)))).max())
        0.0
    """
    mean = jnp.mean(maps, axis=(-3, -2), keepdims=True)
    centred = maps - mean
    variance = jnp.mean(jnp.square(centred), axis=(-3, -2), keepdims=True)
    return centred * jax.lax.rsqrt(variance + ETA)
