"""The verifier rejects every change to the other files of a release."""

import os

import numpy as np
import pytest
import safetensors.numpy
import tiny
from PIL import Image, PngImagePlugin
from tiny_releases import SETTINGS, call, failed, privacy_of, rewrite

from dpaf_jax.release.card import model_card


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


def test_metadata_in_the_generator_is_rejected(copied):
    content = safetensors.numpy.save(tensors_of(copied), {'owner': 'the hospital'})
    (copied / 'generator.safetensors').write_bytes(content)
    assert failed(copied) == {'generator.safetensors'}


def test_text_in_the_picture_is_rejected(copied):
    text = PngImagePlugin.PngInfo()
    text.add_text('Comment', 'made from patient 17')
    picture = Image.open(copied / 'samples.png')
    picture.save(copied / 'samples.png', pnginfo=text)
    assert failed(copied) == {'samples.png'}


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


def test_accuracy_is_accepted_where_the_test_set_is_public_and_only_there(copied):
    accuracy = {'cnn': {'mean': 0.871, 'std': 0.004, 'values': [0.871] * 5}}
    for public in (False, True):
        config = tiny.config(**SETTINGS['one shot'], release__test_set_is_public=public)
        card = model_card(config, privacy_of(copied), accuracy)
        (copied / 'README.md').write_text(card)
        rewrite(
            copied / 'config.json',
            lambda c, public=public: c['release'].update(test_set_is_public=public),
        )
        assert failed(copied) == (set() if public else {'README.md'})
    (copied / 'README.md').write_text(card + 'Best of 90 runs.\n')
    assert failed(copied) == {'README.md'}


@pytest.mark.parametrize(
    ('change', 'caught_by'),
    [
        (lambda c: c['data'].update(source='npz:/home/ann/scans.npz'), 'config.json'),
        (lambda c: c['data'].update(cache='/mnt/ward7'), 'config.json'),
        (lambda c: c.update(comment='mine'), 'config.json'),
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
    ],
)
def test_a_config_of_another_run_is_rejected(copied, change, caught_by):
    rewrite(copied / 'config.json', change)
    if caught_by is None:  # what neither epsilon nor the generator depends on
        assert failed(copied) == set()
    else:
        assert caught_by in failed(copied)
