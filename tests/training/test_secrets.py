"""Nothing that a run writes or says gives its secrets away: every byte of it is searched.

Secrets are the entropy, every key that noise and coins came from, and what only the data
know: their checksum, the sizes of the classes, where they lay.
"""

import base64
import contextlib
import dataclasses
import json
import pathlib
import re
import secrets
import zipfile
from typing import NamedTuple
from unittest import mock

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tiny
import tiny_runs

from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.runtime import processes

COUNTS = (1103, 1217)
ENTROPY = bytes(np.random.default_rng(8).integers(256, size=32, dtype=np.uint8))


class Searched(NamedTuple):
    """A finished run: where, its secrets, and everything it wrote and said."""

    workdir: pathlib.Path
    source: str
    keys: dict[str, bytes]
    written: dict[str, bytes]
    said: str


def write_source(path):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], COUNTS)
    images = rng.integers(256, size=(len(labels), 8, 8), dtype=np.uint8)
    np.savez(
        path,
        train_x=images,
        train_y=labels,
        test_x=images[::100],
        test_y=labels[::100],
    )
    return f'npz:{path}'


@contextlib.contextmanager
def noted(keys):
    """Collects what secrets are derived, by purpose and step."""
    digest = RunKeys._digest

    def note(self, purpose, step):
        made = digest(self, purpose, step)
        if not purpose.startswith('public/'):
            keys[f'{purpose} {step}'] = made
        return made

    with (
        mock.patch.object(RunKeys, '_digest', note),
        mock.patch.object(secrets, 'token_bytes', lambda _: ENTROPY),
    ):
        yield


def unpacked(folder):
    """Every file as it is, and what archives and checkpoints hold, by name."""
    found = {}
    for path in sorted(folder.rglob('*')):
        if not path.is_file():
            continue
        name = str(path.relative_to(folder))
        found[name] = path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    found[f'{name}:{member}'] = archive.read(member)
    for step in folder.glob('checkpoints/*/[0-9]*'):
        tree = ocp.StandardCheckpointer().restore(step.absolute() / 'default')
        for where, leaf in jax.tree_util.tree_leaves_with_path(tree):
            name = f'{step.relative_to(folder)}{jax.tree_util.keystr(where)}'
            found[name] = np.asarray(leaf).tobytes()
    return found


KINDS = ['one_shot', pytest.param('canonical', marks=pytest.mark.slow)]


@pytest.fixture(scope='module', params=KINDS)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp('searched')
    source = write_source(folder / 'patients.npz')
    shrunk = getattr(tiny_runs, request.param)(source, privacy__delta=1e-6)
    variant = request.param
    base = tiny_runs.load_config('digits', variant)
    keys = {}
    with noted(keys):
        outcome = tiny_runs.call_main(
            f'--config=configs/digits.py:{variant}',
            f'--workdir={folder / "run"}',
            *tiny_runs.flags_of(shrunk, base),
        )
    assert outcome.code == 0, outcome.err
    return Searched(
        folder / 'run',
        source.partition(':')[2],
        keys,
        unpacked(folder / 'run'),
        outcome.out + outcome.err,
    )


def spellings(secret):
    """How bytes could appear: raw, hex, base64, Python's bytes, decimal numbers."""
    words = np.frombuffer(secret, np.uint32)
    return [
        secret,
        secret[::-1],
        secret.hex().encode(),
        base64.b64encode(secret).rstrip(b'=')[:-1],
        repr(secret).encode()[2:-1],
        ', '.join(map(str, secret)).encode(),
        b' '.join(str(word).encode() for word in words),
        b', '.join(str(word).encode() for word in words),
        str(int.from_bytes(secret)).encode(),
        str(int.from_bytes(secret, 'little')).encode(),
    ]


def holders(run, needles, private):
    """What contains one of `needles`; `private` says whether to look there too."""
    everything = run.written | {'what it said': run.said.encode()}
    lower = {needle.lower() for needle in needles}
    return [
        name
        for name, content in everything.items()
        if (private or not name.startswith('private/'))
        and any(map(content.lower().__contains__, lower))
    ]


def test_the_search_reaches_into_archives_and_checkpoints(run):
    fingerprint = json.loads(run.written['private/fingerprint.json'])
    assert any(name.endswith('.npy') for name in run.written)
    saved = [n for n in run.written if n.startswith('checkpoints') and "['state']" in n]
    assert any('generator' in name for name in saved)
    found = holders(run, spellings(bytes.fromhex(fingerprint['entropy hash'])), True)
    assert found == ['private/fingerprint.json']


def test_the_entropy_is_nowhere(run):
    assert holders(run, spellings(ENTROPY), private=True) == []
    assert holders(run, spellings(ENTROPY[:8]), private=True) == []


def test_no_key_of_noise_or_coins_is_anywhere(run):
    purposes = {name.partition(' ')[0] for name in run.keys}
    assert 'noise/dpagg' in purposes
    if len(run.keys) > 50:
        assert {'noise/conv1', 'noise/conv2', 'coins/conv1', 'coins/dpagg'} <= purposes
    some = {name.partition(' ')[0]: digest for name, digest in run.keys.items()}
    some |= dict(list(run.keys.items())[:: max(1, len(run.keys) // 10)])
    needles = []
    for digest in some.values():
        needles += spellings(digest[:8]) + spellings(digest[:16])
    assert holders(run, needles, private=True) == []


def test_the_checksum_of_the_data_is_private(run):
    fingerprint = json.loads(run.written['private/fingerprint.json'])
    checksum = bytes.fromhex(fingerprint['data checksum'])
    assert holders(run, spellings(checksum), private=False) == []
    assert holders(run, spellings(checksum), private=True) != []


def test_the_sizes_of_the_classes_are_private(run):
    text = re.compile('|'.join(rf'(?<![\d.]){n}(?![\d.])' for n in COUNTS))
    everything = run.written | {'what it said': run.said.encode()}
    found = [
        name
        for name, content in everything.items()
        if not name.startswith('private/') and text.search(content.decode('latin-1'))
    ]
    readable = ('.json', '.jsonl', '.html', '.md', '.txt', 'what it said')
    assert [name for name in found if name.endswith(readable)] == []
    pair = [np.array(COUNTS, t).tobytes() for t in ('i4', 'i8', 'f4', 'f8')]
    assert holders(run, pair, private=False) == []


def test_the_path_of_the_data_is_in_no_file_to_be_shared(run):
    shared = ('release/', 'samples/', 'report', 'plan.json', 'history', 'tensorboard')
    found = holders(run, [run.source.encode(), b'patients'], private=False)
    assert [name for name in found if name.startswith(shared)] == []


def test_a_refused_resume_names_no_private_number(tmp_path):
    config = tiny_runs.begun(tmp_path / 'run')
    where = tmp_path / 'run' / 'private' / 'fingerprint.json'
    fields = json.loads(where.read_text())
    fields['data checksum'] = 'a' * 64
    where.write_text(json.dumps(fields))
    base = tiny_runs.load_config('digits')
    outcome = tiny_runs.call_main(
        '--config=configs/digits.py',
        f'--workdir={tmp_path / "run"}',
        *tiny_runs.flags_of(config, base),
    )
    assert outcome.code == 2 and 'data checksum' in outcome.err
    now = tiny_runs.contents(tmp_path / 'run')[where]
    for name in ('data checksum', 'entropy hash'):
        assert json.loads(now)[name] not in outcome.err
    assert not re.search(r'\b[0-9a-f]{64}\b', outcome.err)


def test_other_processes_see_private_states_by_a_tag_that_needs_the_entropy(
    monkeypatch,
):
    shown = []
    monkeypatch.setattr(
        processes, 'check_same', lambda what, value: shown.append(value)
    )
    run = tiny.run('unused', tiny.config(method='dp_merf'))
    others = dataclasses.replace(run, keys=tiny.keys(ENTROPY))
    for which, state in ((run, [1.0]), (run, [1.0]), (run, [2.0]), (others, [1.0])):
        which.check_same('states', state)
    assert shown[0] == shown[1] and len(set(shown)) == 3
