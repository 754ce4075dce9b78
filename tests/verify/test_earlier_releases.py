"""Releases of earlier versions stay what they were: consistent, and good for samples."""

import copy
import functools
import json
import pathlib
import shutil

import numpy as np
import pytest
import tiny_runs
from tiny_releases import call, privacy_of, rewrite

from dpaf_jax import sample
from dpaf_jax.config import from_public_dict, public_dict
from dpaf_jax.config.public import ADDED
from dpaf_jax.release.bundle import canonical_json
from dpaf_jax.verify import contents

RELEASES = pathlib.Path(__file__).parent.parent / 'fixtures' / 'releases'
KINDS = ('dp_merf', pytest.param('digits', marks=pytest.mark.slow))  # half a minute


@pytest.mark.parametrize('kind', KINDS)
def test_it_verifies(kind):
    outcome = call(RELEASES / kind)
    assert outcome.code == 0, outcome.out
    stated = f'verdict: consistent: epsilon = {privacy_of(RELEASES / kind)["epsilon"]}'
    assert stated in outcome.out
    assert 'note' not in outcome.out


def test_one_whose_config_has_no_n_verifies_with_a_remark(tmp_path):
    folder = shutil.copytree(RELEASES / 'dp_merf', tmp_path / 'release')
    rewrite(folder / 'config.json', lambda c: c['data'].update(num_examples=0))
    outcome = call(folder)
    assert outcome.code == 0, outcome.out
    assert 'note  num_examples            1469 by privacy.json alone' in outcome.out
    assert "for N = 1469, by the owner's word" in outcome.out


def test_one_whose_config_makes_no_sampler_is_rejected(tmp_path):
    folder = shutil.copytree(RELEASES / 'dp_merf', tmp_path / 'release')
    rewrite(folder / 'config.json', lambda c: c['networks'].update(layers='/home/x'))
    outcome = call(folder)
    assert outcome.code == 1 and 'verdict: REJECTED' in outcome.out
    assert 'README.md               cannot be rebuilt from config.json' in outcome.out


@pytest.mark.parametrize('kind', ['dp_merf', 'digits'])
def test_samples_can_be_drawn_from_it(kind, tmp_path):
    arguments = (f'--release={RELEASES / kind}', '--num=40', '--seed=3')
    out = tmp_path / 'synthetic.npz'
    outcome = tiny_runs.call(sample.run, 'dpaf_jax.sample', *arguments, f'--out={out}')
    assert outcome.code == 0, outcome.err
    with np.load(out) as arrays:
        images, labels = arrays['images'], arrays['labels']
    assert images.shape == (40, 16, 16, 1) and images.dtype == np.uint8
    assert np.bincount(labels).tolist() == [4] * 10
    assert images.std() > 30  # pictures, not an even grey


def test_a_config_from_before_a_field_came_is_accepted_and_another_order_is_not(
    tmp_path,
):
    """Wherever the field stands among the others now."""
    fields = json.loads((RELEASES / 'digits' / 'config.json').read_text())
    now = public_dict(from_public_dict(fields)) | {'version': fields['version']}
    path, tried = tmp_path / 'config.json', 0
    for where, later in ADDED:
        before = copy.deepcopy(now)
        section = functools.reduce(
            lambda s, name: s.get(name, {}), where.split('.'), before
        )
        for name in later.keys() & section.keys():
            del section[name]
            tried += 1
        path.write_text(canonical_json(before))
        assert contents.check_config(path)[1].passed, where
    assert tried > 10
    turned = {**now, 'dpaf': dict(reversed(now['dpaf'].items()))}
    path.write_text(canonical_json(turned))
    assert not contents.check_config(path)[1].passed
