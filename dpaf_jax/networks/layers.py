"""A convolution whose kernel gradients are matrix products; dense layers.

`vmap` of a convolution's kernel gradient becomes a convolution with a group per example,
which is slow on CPU and GPU alike. Under `vmap` the same gradient is computed here from
patches: one product [patch, positions] @ [positions, maps] for each example. On CPU the
gradient of a whole batch is a product for each place of the kernel, which needs no patches. On
large maps it is several times as fast as XLA's own (`benchmarks.convolutions`). The forward
pass and the gradient by the input are XLA's.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

NUMBERS = ('NHWC', 'HWIO', 'NHWC')
# Where on CPU products of patches are faster than `convolve`; on larger sides patches take too
# much memory.
PRODUCT_SIDES, MANY_MAPS = range(6, 17), 64
FEW_MAPS = 8  # below these a product for each place is no faster than XLA's gradient


def convolve(
    maps: jax.Array, kernel: jax.Array, strides: Any, padding: Any, **_: Any
) -> jax.Array:
    """For `flax.linen.Conv(conv_general_dilated=convolve)`.

    Args:
        maps: [B, s, s, c].
        kernel: [k, k, c, m].
        strides: equal for both sides.
        padding: 'SAME'.

    Returns:
        [B, ceil(s / stride), ceil(s / stride), m].
    """
    assert padding == 'SAME' and len(set(strides)) == 1
    return _convolve(maps, kernel, strides[0])


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(maps: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        maps, kernel, (stride, stride), 'SAME', dimension_numbers=NUMBERS
    )


def _forward(maps: jax.Array, kernel: jax.Array, stride: int) -> Any:
    return _convolve(maps, kernel, stride), (maps, kernel)


def _backward(stride: int, saved: Any, cotangent: jax.Array) -> Any:
    maps, kernel = saved
    native = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=(stride, stride),
        padding='SAME',
        dimension_numbers=NUMBERS,
    )
    (by_maps,) = jax.vjp(lambda x: native(x, kernel), maps)[1](cotangent)

    # Shapes only: what is traced must not be closed over.
    like = jax.ShapeDtypeStruct(kernel.shape, kernel.dtype)

    @jax.custom_batching.custom_vmap
    def by_kernel(maps: jax.Array, cotangent: jax.Array) -> jax.Array:
        if cotangent.shape[-1] >= FEW_MAPS and jax.default_backend() == 'cpu':
            return _by_places(like.shape, stride, maps, cotangent)
        (gradient,) = jax.linear_transpose(lambda w: native(maps, w), like)(cotangent)
        return gradient

    @by_kernel.def_vmap
    def _(size: int, batched: list[bool], maps: jax.Array, cotangent: jax.Array) -> Any:
        del size
        axes = tuple(0 if is_batched else None for is_batched in batched)
        product = functools.partial(_by_patches, like.shape, stride)
        return jax.vmap(product, axes)(maps, cotangent), True

    return by_maps, by_kernel(maps, cotangent)


_convolve.defvjp(_forward, _backward)


def _by_patches(
    shape: tuple[int, ...], stride: int, maps: jax.Array, cotangent: jax.Array
) -> jax.Array:
    """The kernel's gradient: what each of its entries saw, times the cotangent there."""
    patches = _patches(maps, shape[0], stride)
    return jnp.einsum('bhwp,bhwm->pm', patches, cotangent).reshape(shape)


def _by_places(
    shape: tuple[int, ...], stride: int, maps: jax.Array, cotangent: jax.Array
) -> jax.Array:
    """The same, one place of the kernel after another."""
    flat = cotangent.reshape(-1, shape[-1])
    seen = _shifted(maps, shape[0], stride)
    return jnp.stack([x.reshape(-1, shape[2]).T @ flat for x in seen]).reshape(shape)


def multiply(inputs: jax.Array, kernel: jax.Array, *_: Any, **__: Any) -> jax.Array:
    """For `flax.linen.Dense(dot_general=multiply)`: [B, i] by [i, o] to [B, o].

    JAX makes the kernel's gradient as [o, i] and turns it round: for gradients example by
    example one more pass over all of them. This one's comes as [i, o].
    """
    return _multiply(inputs, kernel)


@jax.custom_vjp
def _multiply(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    return inputs @ kernel


def _multiply_forward(inputs: jax.Array, kernel: jax.Array) -> Any:
    return inputs @ kernel, (inputs, kernel)


def _multiply_backward(saved: Any, cotangent: jax.Array) -> Any:
    inputs, kernel = saved
    return cotangent @ kernel.T, jnp.einsum('bi,bo->io', inputs, cotangent)


_multiply.defvjp(_multiply_forward, _multiply_backward)


def convolve_by_products(
    maps: jax.Array, kernel: jax.Array, strides: Any, padding: Any, **_: Any
) -> jax.Array:
    """As `convolve`, as one product of patches and kernel.

    Slower in a plain forward pass, but of any order of derivative, by whatever is
    differentiated: the gradient by the kernel of a gradient by the image, example by
    example, is products again.
    """
    assert padding == 'SAME' and len(set(strides)) == 1
    patches = _patches(maps, kernel.shape[0], strides[0])
    return patches @ kernel.reshape(-1, kernel.shape[-1])


def convolve_by_shape(
    maps: jax.Array, kernel: jax.Array, strides: Any, padding: Any, **_: Any
) -> jax.Array:
    """As `convolve` where gradients are of whole batches: the faster way for the shape.

    On CPU, XLA's convolution keeps one core busy at small sides where products keep all.
    """
    fits = maps.shape[1] in PRODUCT_SIDES and kernel.shape[-1] >= MANY_MAPS
    if fits and jax.default_backend() == 'cpu':
        return convolve_by_products(maps, kernel, strides, padding)
    return convolve(maps, kernel, strides, padding)


def convolve_image(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """A network's first layer: `convolve` of stride 2, as one of stride 1.

    Each square of 2 x 2 pixels is one place of four times the channels. On CPU, XLA's gradient
    by few channels across a stride takes twice as long for colour, and for grey images that
    are repeated to three channels four times.

    Args:
        images: [B, s, s, c], or grey [B, s, s, 1], which all channels of the kernel see.
        kernel: [k, k, c, m].

    Returns:
        [B, ceil(s / 2), ceil(s / 2), m].
    """
    side, channels = images.shape[1], images.shape[-1]
    if channels < kernel.shape[2]:
        kernel = jnp.sum(kernel, axis=2, keepdims=True)
    after, size, maps = -(-side // 2), kernel.shape[0], kernel.shape[3]
    padding = max(2 * (after - 1) + size - side, 0) // 2  # in front; the rest is behind
    squares = -(-padding // 2)  # in front
    front = 2 * squares - padding
    width = -(-(front + size) // 2)
    ends = (front, 2 * width - front - size)
    kernel = jnp.pad(kernel, (ends, ends, (0, 0), (0, 0)))
    kernel = kernel.reshape(width, 2, width, 2, channels, maps).swapaxes(1, 2)
    odd = (0, side % 2)
    images = jnp.pad(images, ((0, 0), odd, odd, (0, 0)))
    places = images.reshape(-1, after, 2, after, 2, channels).swapaxes(2, 3)
    around = (squares, width - 1 - squares)
    return jax.lax.conv_general_dilated(
        places.reshape(-1, after, after, 4 * channels),
        kernel.reshape(width, width, 4 * channels, maps),
        (1, 1),
        (around, around),
        dimension_numbers=NUMBERS,
    )


def _patches(maps: jax.Array, kernel: int, stride: int) -> jax.Array:
    """[B, s, s, c] to [B, s', s', kernel * kernel * c]: what each position sees."""
    return jnp.concatenate(_shifted(maps, kernel, stride), axis=-1)


def _shifted(maps: jax.Array, kernel: int, stride: int) -> list[jax.Array]:
    """[B, s', s', c] for each place of the kernel: what it sees at each position."""
    side = maps.shape[1]
    after = -(-side // stride)
    total = max((after - 1) * stride + kernel - side, 0)
    pad = (total // 2, total - total // 2)
    padded = jnp.pad(maps, ((0, 0), pad, pad, (0, 0)))
    reach = (after - 1) * stride + 1
    return [
        padded[:, i : i + reach : stride, j : j + reach : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
