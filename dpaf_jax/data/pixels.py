"""From an encoded picture or a pixel array to [S, S, C] uint8."""

import contextlib
import io
import struct
import warnings

import numpy as np
from PIL import Image, ImageFile, ImageOps

from dpaf_jax.data.sources.base import Content

_MODES = {1: 'L', 3: 'RGB'}
GREY = '1', 'L', 'LA'  # Pillow's modes, beside those of more than 8 bits
DEEP = ('I', 'F')  # how Pillow's modes with more than 8 bits a channel begin
_DAMAGE = (
    OSError,
    SyntaxError,  # Pillow's word for a broken PNG
    ValueError,
    EOFError,
    struct.error,
    Image.DecompressionBombError,
)


# Of one private picture, and in whatever log there is.
warnings.filterwarnings('ignore', module=r'PIL\.')


class BadPictureError(Exception):
    """Says what is wrong with one picture; the caller knows which one it is."""


def to_pixels(
    content: Content,
    image_size: int,
    channels: int,
    fit: str = 'crop',
    window: tuple[float, float] | None = None,
) -> np.ndarray:
    """Decodes one picture, turns it upright, makes it a square and resizes it.

    A function of the picture alone: pictures of a source may be of any sizes.

    Lanczos, because sources are enlarged as well as reduced: reducing, it is
    antialiased like an area average but sharper at ratios that are not whole
    numbers; enlarging, an area average would leave blocks. An image of the right
    size is not resampled: its pixels are kept to the bit.

    Args:
        content: an encoded picture, or [H, W] or [H, W, C] uint8 with C in {1, 3}.
        image_size: S.
        channels: 1 (grey: ITU-R 601 luma) or 3 (RGB); transparency is laid on white.
        fit: 'crop' takes the centred square; 'pad' keeps all of it, centred on black.
        window: of pictures with more than 8 bits a channel, what becomes 0 and what 255.

    Returns:
        [S, S, channels] uint8.

    Raises:
        BadPictureError: truncated, damaged, or with more than 8 bits a channel and no
            window.
    """
    if isinstance(content, np.ndarray) and content.ndim == 2:
        content = content[:, :, None]
    shape = (image_size, image_size, channels)
    if isinstance(content, np.ndarray) and content.shape == shape:
        return content
    try:
        picture = _SQUARES[fit](_convert(_open(content), channels, window))
        if picture.width != image_size:
            picture = picture.resize((image_size,) * 2, Image.Resampling.LANCZOS)
    except Image.UnidentifiedImageError as error:
        raise BadPictureError('is not a picture, or is damaged') from error
    except _DAMAGE as error:
        raise BadPictureError(f'is truncated or damaged ({error})') from error
    return np.asarray(picture).reshape(shape)


def _open(content: Content) -> Image.Image:
    if isinstance(content, np.ndarray):
        return Image.fromarray(content[:, :, 0] if content.shape[2] == 1 else content)
    file = Image.open(io.BytesIO(content))
    levels = _stated_levels(file)
    file.load()  # open() reads only the header
    if levels:
        own = np.asarray(file, np.float64) * (levels / (2**16 - 1))
        return Image.fromarray(np.rint(own).astype(np.int32))
    # Cameras note how they were held. A note that cannot be read, for whatever reason,
    # leaves the picture as it lies.
    with contextlib.suppress(Exception):
        ImageOps.exif_transpose(file, in_place=True)
    return file


def _stated_levels(picture: ImageFile.ImageFile) -> int:
    """The largest level of a grey PNM file of 9 to 15 bits; 0 for all other pictures.

    Pillow stretches such levels to 16 bits, so a window would be of other ones.
    """
    if picture.format != 'PPM' or not picture.mode.startswith(DEEP):
        return 0
    args = picture.tile[0].args
    levels = args[-1] if isinstance(args, tuple) else 0
    return levels if isinstance(levels, int) and 255 < levels < 2**16 - 1 else 0


def _convert(
    picture: Image.Image, channels: int, window: tuple[float, float] | None
) -> Image.Image:
    if picture.mode.startswith(DEEP):
        # Pillow would clip these at 255 without a word.
        if window is None:
            raise BadPictureError('has more than 8 bits a channel, and needs a window')
        low, high = window
        share = (np.asarray(picture, np.float64) - low) / (high - low)
        share = np.nan_to_num(np.clip(share, 0, 1))
        picture = Image.fromarray(np.rint(255 * share).astype(np.uint8))
    if picture.has_transparency_data:
        # Colours behind what cannot be seen are whatever a program has left there.
        picture = picture.convert('RGBA')
        ground = Image.new('RGBA', picture.size, 'white')
        picture = Image.alpha_composite(ground, picture)
    return picture.convert(_MODES[channels])


def _crop(picture: Image.Image) -> Image.Image:
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return picture.crop((left, top, left + side, top + side))


def _pad(picture: Image.Image) -> Image.Image:
    width, height = picture.size
    side = max(width, height)
    square = Image.new(picture.mode, (side, side))  # of zeros: black
    square.paste(picture, ((side - width) // 2, (side - height) // 2))
    return square


_SQUARES = {'crop': _crop, 'pad': _pad}
