"""Contracts of `python -m dpaf_jax.audit`: what is wrong is said before it works."""

import errno
import os

import pytest
import tiny_runs

from dpaf_jax.audit import __main__ as command
from dpaf_jax.audit import report, session
from dpaf_jax.runtime import files

RECOMMENDED = '--config=configs/recommended.py'


@pytest.fixture
def audit(monkeypatch):
    """The command; nothing is audited, its table is `table`."""
    monkeypatch.chdir(tiny_runs.ROOT)
    made = type('Audit', (), {'violations': ()})()
    monkeypatch.setattr(session, 'audit', lambda *args, **more: made)
    monkeypatch.setattr(report, 'table', lambda made: 'table')
    monkeypatch.setattr(
        report,
        'write_audit',
        lambda made, out: files.write_text(out / 'audit.json', ''),
    )

    def run(*args):
        return tiny_runs.call(command.run, 'dpaf_jax.audit', *args)

    return run


def refused(outcome) -> str:
    assert (outcome.code, outcome.out) == (2, '')
    assert outcome.err.count('\n') == 1
    return outcome.err


def test_a_place_that_cannot_be_written_is_found_before_work(audit, tmp_path):
    file = tmp_path / 'file'
    file.write_text('in the way')
    for out, message in (
        (file, f'error: --out: {file}: is a file. Give another --out.'),
        (file / 'x', f'error: --out: {file}/x: is below {file}, a file. Give another'),
        ('/proc/x', 'error: --out: /proc/x: cannot be written ('),
    ):
        text = refused(audit(f'{RECOMMENDED}:digits', f'--out={out}'))
        assert text.startswith(message)
    assert file.read_text() == 'in the way'


def test_what_was_found_is_printed_though_it_cannot_be_written(
    audit, tmp_path, monkeypatch
):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, 'fsync', full)
    config = f'{RECOMMENDED}:digits', '--config.data.num_examples=1469'
    done = audit(*config, f'--out={tmp_path}/new')
    assert (done.code, done.out) == (2, 'table\n')
    assert done.err.startswith(f'error: {tmp_path}/new: the disk is full (')


def test_fields_that_the_data_decide_are_asked_for(audit, tmp_path):
    text = refused(audit(f'{RECOMMENDED}:folder:{tmp_path},1', f'--out={tmp_path}/a'))
    assert text.startswith('error: --config: leaves data.num_classes, data.class_names')
    assert '--config.data.num_classes=VALUE' in text and '--release=RUN/release' in text


@pytest.mark.parametrize(
    ('args', 'message'),
    [
        ((f'{RECOMMENDED}:digits',), '--out is needed. See'),
        (('--out=x',), '--config or --release is needed. See'),
        (
            (f'{RECOMMENDED}:digits', '--release=x', '--out=x'),
            '--config and --release: both are given. Give one of them. See',
        ),
        (
            (f'{RECOMMENDED}:digits', '--out=x', '--devices=1,65'),
            '--devices: is 65. Give',
        ),
    ],
)
def test_what_is_missing_or_too_much_is_said(audit, args, message):
    assert refused(audit(*args)).startswith(f'error: {message}')
