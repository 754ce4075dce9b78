"""Hermite features of numbers: the truncated Mehler expansion of a Gaussian kernel."""

import math

import jax
import jax.numpy as jnp


def mehler_ratio(length_scale: float) -> float:
    """The rho in (0, 1) of the kernel exp(-(x - y)^2 / (2 length_scale^2)).

    The root of rho / (1 - rho^2) = 1 / (2 length_scale^2).
    """
    square = length_scale**2
    return 1 / (math.sqrt(1 + square**2) + square)


def hermite(values: jax.Array, order: int, length_scale: float) -> jax.Array:
    """Features of each number: rows of norm at most 1.

    By Mehler's formula exp(-rho / (1 - rho^2) (x - y)^2) is the sum over c of
    lambda_c f_c(x) f_c(y), with f_c the c-th Hermite polynomial times a Gaussian. At x = y
    all terms are squares and their sum is 1, so any part of them has norm at most 1.
    Source: Vinaroz et al. 2022, "Hermite polynomial features for private data generation",
    section 3, and the recursion of its appendix.

    Args:
        values: float32 of any shape.
        order: C, at least 1.
        length_scale: of the kernel, above 0.

    Returns:
        [..., C + 1] float32, the root of lambda_c times f_c.
    """
    rho = mehler_ratio(length_scale)
    first = (1 - rho**2) ** 0.25 * jnp.exp(-rho / (1 + rho) * jnp.square(values))
    found = [first, math.sqrt(2 * rho) * values * first]
    for k in range(1, order):
        up = math.sqrt(2 * rho / (k + 1)) * values * found[k]
        found.append(up - rho * math.sqrt(k / (k + 1)) * found[k - 1])
    return jnp.stack(found, axis=-1)
