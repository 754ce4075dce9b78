"""The verifier rejects every change to the other files of a release."""

import dataclasses
import json
import os
import struct
import zlib
from zlib import crc32

import numpy as np
import pytest
import safetensors.numpy
import tiny
from PIL import Image, PngImagePlugin
from tiny_releases import SETTINGS, call, failed, privacy_of, rewrite

from dpaf_jax.config import public_dict
from dpaf_jax.release import pictures
from dpaf_jax.release.bundle import FILES, canonical_json
from dpaf_jax.release.card import model_card
from dpaf_jax.verify import contents
from dpaf_jax.verify.verification import verify


@pytest.mark.parametrize('extra', ['notes.txt', '.hidden', 'discriminator.safetensors'])
def test_an_extra_file_is_rejected(copied, extra):
    (copied / extra).write_text('')
    assert failed(copied) == {'files'}


def test_a_folder_a_missing_file_and_a_link_are_rejected(copied, tmp_path):
    (copied / 'private').mkdir()
    assert failed(copied) == {'files'}
    (copied / 'private').rmdir()
    outside = tmp_path / 'elsewhere.png'
    os.replace(copied / 'samples.png', outside)
    assert failed(copied) == {'files', 'samples.png'}
    (copied / 'samples.png').symlink_to(outside)
    assert failed(copied) == {'files'}


@pytest.mark.parametrize('name', FILES)
def test_a_pipe_in_place_of_a_file_is_rejected_unread(copied, name):
    (copied / name).unlink()
    os.mkfifo(copied / name)
    assert (call(copied).code, failed(copied)) == (1, {'files'})


@pytest.mark.parametrize('name', FILES)
def test_a_missing_file_is_named(copied, name):
    (copied / name).unlink()
    outcome = call(copied)
    assert (outcome.code, failed(copied)) == (1, {'files', name})
    assert 'Errno' not in outcome.out and 'No such file' not in outcome.out
    (line,) = (row for row in outcome.out.splitlines() if f'FAIL  {name}' in row)
    assert line.endswith('is missing')


def tensors_of(folder):
    return safetensors.numpy.load_file(folder / 'generator.safetensors')


def another_shape(tensors, name):
    return tensors | {name: np.zeros((*tensors[name].shape[:-1], 7), np.float32)}


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (another_shape, 'does not fit'),
        (lambda t, n: {k: v for k, v in t.items() if k != n}, 'does not fit'),
        (lambda t, n: t | {'entropy': np.zeros(4, np.uint8)}, 'does not fit'),
        (lambda t, n: t | {n: t[n].astype(np.float64)}, 'does not fit'),
        (lambda t, n: t | {n: np.full_like(t[n], np.nan)}, 'not finite'),
    ],
)
def test_another_generator_is_rejected(copied, change, message):
    tensors = tensors_of(copied)
    changed = change(tensors, sorted(tensors)[0])
    (copied / 'generator.safetensors').write_bytes(safetensors.numpy.save(changed))
    outcome = call(copied)
    assert (outcome.code, failed(copied)) == (1, {'generator.safetensors'})
    assert message in outcome.out


@pytest.mark.parametrize(
    ('shares', 'passes'),
    [([0.2, 0.3, 0.5], True), ([-3, 5, -1], False), ([0.2, 0.2, 0.2], False)],
)
def test_noisy_shares_of_classes_are_shares(tmp_path, shares, passes):
    config = tiny.config(method='dp_merf', data__noisy_prior=0.1)
    tensors = {
        name: np.zeros(*leaf)
        for name, leaf in contents._generator_tensors(config).items()
    }
    tensors['prior/classes'] = np.array(shares, np.float32)
    path = tmp_path / 'generator.safetensors'
    path.write_bytes(safetensors.numpy.save(tensors))
    assert contents.check_generator(path, config).passed == passes


def other_header(content, change):
    """The same tensors behind another header."""
    (length,) = struct.unpack_from('<Q', content)
    header = change(content[8 : 8 + length])
    return struct.pack('<Q', len(header)) + header + content[8 + length :]


@pytest.mark.parametrize(
    'change',
    [
        lambda header: header + b' ' * 8,
        lambda header: header.rstrip() + b'\t' * (len(header) - len(header.rstrip())),
        lambda header: b'{ ' + header[1:] + b' ' * 7,
        lambda header: b'{"__metadata__":{},' + header[1:],
        lambda header: b'{"__metadata__":{"owner":"the hospital"},' + header[1:],
        lambda header: header.replace(b'"dtype"', rb'"\u0064type"', 1),
        lambda header: header.replace(b'"params/', rb'"\u0070arams/', 1),
    ],
)
def test_a_byte_more_in_the_generators_header_is_rejected(copied, change):
    path = copied / 'generator.safetensors'
    content = path.read_bytes()
    path.write_bytes(other_header(content, change))
    assert path.read_bytes() != content
    assert failed(copied) == {'generator.safetensors'}


def test_text_in_the_picture_is_rejected(copied):
    text = PngImagePlugin.PngInfo()
    text.add_text('Comment', 'made from patient 17')
    picture = Image.open(copied / 'samples.png')
    picture.save(copied / 'samples.png', pnginfo=text)
    assert failed(copied) == {'samples.png'}


def png(*chunks):
    packed = [
        struct.pack('>I', len(body))
        + kind
        + body
        + struct.pack('>I', crc32(kind + body))
        for kind, body in chunks
    ]
    return b'\x89PNG\r\n\x1a\n' + b''.join(packed)


def chunks_of(content):
    """Header and inflated pixels of a picture that the package wrote."""
    (length,) = struct.unpack_from('>I', content, 33)
    return content[16:29], zlib.decompress(content[41 : 41 + length])


RECORD = bytes(range(256)) * 40  # 10 kB


def empty_blocks(pixels):
    """The pixels' stream behind many blocks that hold nothing."""
    stream = zlib.compressobj(9)
    blocks = b''.join(stream.flush(zlib.Z_FULL_FLUSH) or b'' for _ in range(10))
    blocks += stream.compress(pixels[:1]) + stream.flush(zlib.Z_FULL_FLUSH)
    blocks += b'\x00\x00\x00\xff\xff' * 2000  # stored blocks of length 0
    return blocks + stream.compress(pixels[1:]) + stream.flush()


def pack(header, *data, end=b''):
    return png((b'IHDR', header), *((b'IDAT', d) for d in data), (b'IEND', end))


@pytest.mark.parametrize(
    'damage',
    {
        'raw': lambda h, p: pack(h, RECORD),
        'a chunk more': lambda h, p: pack(h, zlib.compress(p, 9), RECORD),
        'behind the stream': lambda h, p: pack(h, zlib.compress(p, 9) + RECORD),
        'more pixels': lambda h, p: pack(h, zlib.compress(p + RECORD, 9)),
        'fewer pixels': lambda h, p: pack(h, zlib.compress(p[:-1], 9)),
        'no end of stream': lambda h, p: pack(h, zlib.compress(p, 9)[:-4]),
        'in the end': lambda h, p: pack(h, zlib.compress(p, 9), end=RECORD),
        'behind the end': lambda h, p: (
            pack(h, zlib.compress(p)) + png((b'IEND', b''))[8:]
        ),
        'two headers': lambda h, p: png(
            (b'IHDR', h), (b'IHDR', h), (b'IDAT', zlib.compress(p)), (b'IEND', b'')
        ),
        'a long header': lambda h, p: pack(h + RECORD, zlib.compress(p, 9)),
        'interlaced': lambda h, p: pack(h[:-1] + b'\1', zlib.compress(p, 9)),
        'empty blocks': lambda h, p: pack(h, empty_blocks(p)),
        'stored': lambda h, p: pack(h, zlib.compress(p, 0)),
        'no filter': lambda h, p: pack(h, zlib.compress(b'\7' + p[1:], 9)),
        'nothing': lambda h, p: b'',
        'signature': lambda h, p: png(),
    }.items(),
    ids=lambda damage: damage[0],
)
def test_what_no_reader_of_the_picture_shows_is_rejected(copied, damage):
    path = copied / 'samples.png'
    path.write_bytes(damage[1](*chunks_of(path.read_bytes())))
    assert failed(copied) == {'samples.png'}


@pytest.mark.parametrize('place', [(0, 57), (3, 3), (60, 3)])
def test_pixels_that_no_grid_of_samples_has_are_rejected(copied, place):
    """See-through ones between the tiles, and parts of enlarged ones."""
    pixels = np.array(Image.open(copied / 'samples.png'))
    pixels[place][0] ^= 17
    pictures.save_png(Image.fromarray(pixels), copied / 'samples.png')
    assert failed(copied) == {'samples.png'}


def test_a_picture_that_another_zlib_compressed_is_remarked_and_accepted(copied):
    path = copied / 'samples.png'
    header, pixels = chunks_of(path.read_bytes())
    other = zlib.compressobj(8, zlib.DEFLATED, 15, 9, zlib.Z_FILTERED)
    stream = other.compress(pixels) + other.flush()
    halves = stream[: len(stream) // 2], stream[len(stream) // 2 :]
    path.write_bytes(pack(header, *halves))
    found = [check for check in verify(copied).checks if check.name == 'samples.png']
    assert [check.passed for check in found] == [True, None]


@pytest.mark.parametrize('damage', ['tail', 'cut', 'flipped', 'size', 'empty', 'jpeg'])
def test_a_picture_that_is_more_or_less_than_its_pixels_is_rejected(copied, damage):
    path = copied / 'samples.png'
    content = bytearray(path.read_bytes())
    picture = Image.open(path)
    picture.load()
    content[60] ^= damage == 'flipped'
    path.write_bytes(
        {'tail': content + b'x', 'cut': content[:-5], 'empty': b''}.get(damage, content)
    )
    if damage == 'size':
        picture.resize((50, 50)).save(path)
    if damage == 'jpeg':
        picture.convert('RGB').save(path, format='JPEG')
    assert failed(copied) == {'samples.png'}


@pytest.mark.parametrize(
    'edit',
    [
        lambda card: card.replace('at delta = 1e-05', 'at delta = 1e-06'),
        lambda card: card.replace('certified', 'certified twice'),
        lambda card: card + 'Trained on ward 7.\n',
        lambda card: card.replace('\n', '\r\n'),
        lambda card: '',
    ],
)
def test_an_edited_card_is_rejected(copied, edit):
    path = copied / 'README.md'
    path.write_bytes(edit(path.read_text()).encode())
    assert failed(copied) == {'README.md'}


ACCURACY = {
    'cnn': {'mean': 0.871, 'std': 0.004, 'values': [0.871]},
    'logistic_regression': {'mean': 1.0, 'std': 0.0, 'values': [1.0]},
}


def show_accuracy(folder, public=True, edit=lambda card: card, accuracy=ACCURACY):
    config = tiny.config(**SETTINGS['one shot'], release__test_set_is_public=public)
    card = edit(model_card(config, privacy_of(folder), accuracy))
    (folder / 'README.md').write_text(card)
    rewrite(
        folder / 'config.json',
        lambda c: c['release'].update(test_set_is_public=public),
    )


def test_accuracy_is_accepted_where_the_test_set_is_public_and_only_there(copied):
    show_accuracy(copied, public=False)
    assert failed(copied) == {'README.md'}
    show_accuracy(copied)
    assert failed(copied) == set()


def test_a_card_has_the_figures_of_every_suite_or_no_head(copied):
    one = ACCURACY['cnn']
    show_accuracy(copied, accuracy={'resnext': one, 'wide_resnet_40_4': one})
    assert '| resnext | 0.871 |' in (copied / 'README.md').read_text()
    assert failed(copied) == set()
    show_accuracy(copied, accuracy={'linear_svc': one})  # not among a card's rows
    assert failed(copied) == set()


ROW = '| cnn | 0.871 | 0.004 | 1 |\n'


@pytest.mark.parametrize(
    'edit',
    [
        lambda card: card + 'Best of 90 runs.\n',
        lambda card: card.replace(
            ROW, '| patient 17 is positive | 0.100 | 0.100 | 1 |\n'
        ),
        lambda card: card.replace('| cnn |', '| patient 17 of ward 0 |'),
        lambda card: card.replace(ROW, ROW.replace(' 1 ', f' {"4" * 96} ')),
        lambda card: card.replace(ROW, ROW.replace(' 1 ', ' 2 ')),
        lambda card: card.replace(ROW, ROW.replace('0.871', '7.871')),
        lambda card: card.replace(ROW, ROW * 2),
        lambda card: card.replace(ROW, '') + ROW,
        lambda card: card.replace('Accuracy on', 'AUROC on'),
        lambda card: card[: card.index('| cnn')],
    ],
)
def test_anything_else_in_the_table_of_figures_is_rejected(copied, edit):
    show_accuracy(copied, edit=edit)
    assert failed(copied) == {'README.md'}


@pytest.mark.parametrize(
    ('fields', 'what'),
    [
        ({'dpgen__warm_start': 'private:1'}, 'sees private images under noise alone'),
        ({'dpgen__warm_start': 'digits', 'data__source': 'digits'}, 'the private'),
        ({'data__source': 'npz:/x.npz', 'data__group': '([0-9]+)'}, 'by their place'),
    ],
)
def test_a_config_that_no_run_would_have_begun_with_is_rejected(tmp_path, fields, what):
    config = tiny.config(method='dpgen')
    for name, value in fields.items():
        section, field = name.split('__')
        changed = dataclasses.replace(getattr(config, section), **{field: value})
        config = dataclasses.replace(config, **{section: changed})
    path = tmp_path / 'config.json'
    path.write_text(canonical_json(public_dict(config)))
    _, check = contents.check_config(path)
    assert not check.passed and what in check.detail


def test_starts_from_another_folder_than_the_private_one_are_accepted(tmp_path):
    fields = {'data__source': 'folder:/a', 'dpgen__warm_start': 'folder:/b'}
    path = tmp_path / 'config.json'
    path.write_text(canonical_json(public_dict(tiny.config(method='dpgen', **fields))))
    assert contents.check_config(path)[1].passed


@pytest.mark.parametrize('name', ['config.json', 'privacy.json'])
@pytest.mark.parametrize(
    'edit',
    [
        lambda text: text + ' ' * 10_000,
        lambda text: text + '\n',
        lambda text: text.rstrip(),
        lambda text: text.replace(': ', ':\t', 1),
        lambda text: text.replace('\n', '\r\n'),
        lambda text: text.replace('1e-05', '1.000000000000000000017e-05'),
        lambda text: text.replace('1e-05', '0.00001'),
        lambda text: text.replace('certified', r'certifie\u0064'),
        lambda text: json.dumps(json.loads(text), separators=(',', ':')),
        lambda text: canonical_json(json.loads(text)).replace('    ', '\t'),
        lambda text: canonical_json(dict(reversed(json.loads(text).items()))),
        lambda text: text.replace('": 40,', '": 40.0,'),
    ],
)
def test_json_of_other_bytes_than_the_packages_is_rejected(copied, name, edit):
    path = copied / name
    text = path.read_text()
    path.write_bytes(edit(text).encode())
    assert path.read_bytes() != text.encode()
    assert failed(copied) & {name, 'plan'}


@pytest.mark.parametrize(
    ('change', 'caught_by'),
    [
        (lambda c: c['data'].update(source='npz:/home/ann/scans.npz'), 'config.json'),
        (lambda c: c['data'].update(source='scans of ward 7'), 'config.json'),
        (lambda c: c['data'].update(num_examples=40.0), 'config.json'),
        (lambda c: c['privacy'].update(epsilon=1), 'config.json'),
        (lambda c: c['data'].update(cache='/mnt/ward7'), 'config.json'),
        (lambda c: c['data'].update(label='what Ann has'), 'config.json'),
        (lambda c: c.update(comment='mine'), 'config.json'),
        # What the door refuses: groups by position, private images as public ones.
        (lambda c: c['data'].update(group='([0-9]+)'), 'config.json'),
        (lambda c: c['dpaf'].update(warm_start=c['data']['source']), 'config.json'),
        (lambda c: c.update(version='0.1.0 by Ann'), 'config.json'),
        (lambda c: c.pop('run'), 'config.json'),
        (lambda c: c['privacy'].update(epsilon='much'), 'config.json'),
        (lambda c: c['privacy'].update(epsilon=0.5), 'plan'),
        (lambda c: c['dpaf'].update(taps='count,conv2'), None),
        (lambda c: c['dpaf'].update(epochs=3.0), 'plan'),
        (lambda c: c['data'].update(num_examples=41), 'num_examples'),
        (lambda c: c['networks'].update(z_dim=9), 'generator.safetensors'),
        (lambda c: c['networks'].update(layers='C9'), 'generator.safetensors'),
        (lambda c: c.update(method='gan'), 'plan'),
        (lambda c: c.update(method='dpgen'), 'config.json'),  # has not its fields
        # What could carry a message, and no mechanism would notice.
        (lambda c: c['privacy'].update(budgets='0.1, \t rest,0.1'), 'config.json'),
        (
            lambda c: c['privacy'].update(budgets='0.1000000116,rest,0.10'),
            'config.json',
        ),
        (lambda c: c['dpaf'].update(taps='count,\u2003conv2'), 'config.json'),
        (lambda c: c['data'].update(window='0:4095.000000000000107'), 'config.json'),
        (lambda c: c['networks'].update(layers='C01-C1-x'), 'config.json'),
    ],
)
def test_a_config_of_another_run_is_rejected(copied, change, caught_by):
    rewrite(copied / 'config.json', change)
    if caught_by is None:  # what neither epsilon nor the generator depends on
        assert failed(copied) == set()
    else:
        assert caught_by in failed(copied)
