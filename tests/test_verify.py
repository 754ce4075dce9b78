"""The verifier: accepts what the package writes, rejects every change to it."""

import copy
import dataclasses
import functools
import json
import math
import os
import pathlib
import shutil
import tempfile
from unittest import mock

import jax
import numpy as np
import pytest
import safetensors.numpy
import tiny
import tiny_runs
from PIL import Image, PngImagePlugin

from dpaf_jax import verify as command
from dpaf_jax.config import from_public_dict
from dpaf_jax.methods import dpaf
from dpaf_jax.model_card import model_card
from dpaf_jax.pipeline import FIXED_ENTROPY
from dpaf_jax.privacy import independent
from dpaf_jax.release import write_release
from dpaf_jax.samplers import make_sampler
from dpaf_jax.verification import contents, statement, verify
from dpaf_jax.verification.statement import check_statement

SETTINGS = {
    'mixed': {'privacy__epsilon': 0.1, 'privacy__budgets': '30%,rest,30%'},
    'one shot': {'privacy__epsilon': 1.0, **tiny.ONE_SHOT},
    'no noise': {'privacy__epsilon': math.inf},
    'as published': {'privacy__guarantee': 'as_published', 'privacy__epsilon': 100.0},
    'fixed entropy': {'privacy__epsilon': 1.0, **tiny.ONE_SHOT},
}
CERTIFIED = ('mixed', 'one shot')
NUMBER = tiny.NUM_EXAMPLES
plan_once = functools.cache(dpaf.plan)


@functools.cache
def made(kind: str) -> pathlib.Path:
    """A release with an untrained generator; its plan is the real one."""
    config = tiny.config(**SETTINGS[kind])
    plan = plan_once(config, NUMBER)
    if kind == 'fixed entropy':
        plan = dataclasses.replace(plan, guarantee=FIXED_ENTROPY)
    params = jax.jit(make_sampler(config).init)(jax.random.key(0))
    folder = pathlib.Path(tempfile.mkdtemp(prefix='dpaf_jax-verify-')) / 'release'
    write_release(folder, config, plan, params)
    return folder


@pytest.fixture(scope='module', autouse=True)
def _remove():
    yield
    for kind in SETTINGS:
        shutil.rmtree(made(kind).parent)


@pytest.fixture
def known_plan(monkeypatch):
    """The plan is rebuilt once a config and N; only the test of the command does more."""
    monkeypatch.setattr(dpaf, 'plan', plan_once)


@pytest.fixture
def copied(tmp_path, known_plan):
    """A certified release to damage."""
    return shutil.copytree(made('one shot'), tmp_path / 'release')


def call(folder, *more):
    return tiny_runs.call(command.run, 'dpaf_jax.verify', f'--release={folder}', *more)


def failed(folder) -> set[str]:
    return {check.name for check in verify(folder).checks if check.passed is False}


def privacy_of(folder) -> dict:
    return json.loads((folder / 'privacy.json').read_text())


def rewrite(path, change, **options):
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields, **options))


# --- what is accepted -----------------------------------------------------------------


@pytest.mark.parametrize('kind', SETTINGS)
def test_every_kind_of_release_is_consistent(kind, known_plan):
    found = verify(made(kind))
    assert found.passed, [str(check) for check in found.checks]
    says_nothing = 'NOTHING IS CERTIFIED' in found.verdict()
    assert says_nothing == (kind not in CERTIFIED)
    assert 'Not checked: the execution' in found.verdict()


def test_the_command_in_a_process_of_its_own():
    done = tiny_runs.run_python(
        '-m', 'dpaf_jax.verify', f'--release={made("one shot")}'
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert not [line for line in lines if line.startswith('FAIL')]
    for accountant in ('PLD', 'Renyi DP', 'independently'):
        assert any('epsilon' in line and accountant in line for line in lines)
    assert (
        f'verdict: consistent: epsilon = {privacy_of(made("one shot"))["epsilon"]}'
        in (done.stdout)
    )


@pytest.mark.parametrize('kind', CERTIFIED)
def test_all_three_accountants_agree_with_what_is_stated(kind):
    privacy = privacy_of(made(kind))
    found = statement.recompute(privacy)
    assert privacy['epsilon'] - 1e-4 <= found.pld <= privacy['epsilon']
    assert privacy['epsilon_rdp'] - 1e-4 <= found.rdp <= privacy['epsilon_rdp']
    assert found.bounds.lower <= found.pld
    assert found.bounds.upper <= 1.005 * found.pld


def integral(value):
    """As JavaScript writes numbers: 10 for 10.0."""
    if isinstance(value, dict):
        return {name: integral(v) for name, v in value.items()}
    if isinstance(value, list):
        return [integral(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize('kind', SETTINGS)
@pytest.mark.parametrize('writer', ['compact', 'sorted', 'integral'])
def test_another_json_writer_changes_nothing(kind, writer, tmp_path, known_plan):
    folder = shutil.copytree(made(kind), tmp_path / 'release')
    for name in ('privacy.json', 'config.json'):
        fields = json.loads((folder / name).read_text())
        text = {
            'compact': lambda f: json.dumps(f, separators=(',', ':')),
            'sorted': lambda f: json.dumps(f, indent=7, sort_keys=True),
            'integral': lambda f: json.dumps(integral(f)),
        }[writer](fields)
        assert text != (folder / name).read_text()
        (folder / name).write_text(text)
    assert failed(folder) == set()


def test_a_delta_that_is_too_large_for_n_is_remarked_and_no_mistake():
    config = tiny.config(**SETTINGS['no noise'], privacy__delta=0.03)
    plan = plan_once(config, NUMBER)
    checks = check_statement(plan.to_json(), model_card(config, plan.to_json()), config)
    assert [c.passed for c in checks if 'not below 1 / num_examples' in c.detail] == [
        None
    ]
    assert all(check.passed is not False for check in checks)


# --- every edit of privacy.json -------------------------------------------------------


def other_values(name, value):
    """What else a field could say, down to the smallest change that means anything."""
    yield from (None, '', [], {}, 'certified', FIXED_ENTROPY, True)
    if isinstance(value, str):
        yield from (value + ' ', value[:-1], value.upper(), 'Mechanism')
        yield value.replace('REPLACE_SPECIAL', 'REPLACE_ONE')
        yield value.replace('1e-4', '1e-3')
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from (
            1.01 * value,
            0.99 * value,
            -value,
            0,
            2 * value,
            str(value),
            1e-300,
        )
        if isinstance(value, int):
            yield from (value + 1, value - 1, value + 0.5)
        elif name in ('overflow_delta', 'claimed_epsilon', 'noise_multiplier'):
            yield from (value * (1 + 1e-8) + 1e-20, value * (1 - 1e-8) - 1e-20)
        else:
            yield from (
                math.nextafter(value, math.inf),
                math.nextafter(value, -math.inf),
            )
    if value is None:
        yield from (0.0, 1.0, 'inf')


def edits(fields, path=()):
    """Every way to change one field: (where and how, the value there)."""
    if isinstance(fields, dict | list):
        names = list(fields) if isinstance(fields, dict) else range(len(fields))
        for name in names:
            without = copy.deepcopy(fields)
            del without[name]
            yield (*path, name, 'dropped'), without
            for where, value in edits(fields[name], (*path, name)):
                changed = copy.copy(fields)
                changed[name] = value
                yield where, changed
        if isinstance(fields, dict):
            yield (*path, 'added'), fields | {'note': 'ours'}
        elif fields:
            yield (*path, 'added'), [*fields, fields[-1]]
            if len(fields) > 1:
                yield (*path, 'reversed'), fields[::-1]
    name = path[-1] if path else ''
    for value in other_values(name, fields):
        if not contents.same(value, fields):
            yield (*path, value), value


@pytest.mark.parametrize('kind', SETTINGS)
def test_every_single_edit_of_privacy_json_is_rejected(kind):
    folder = made(kind)
    config = from_public_dict(json.loads((folder / 'config.json').read_text()))
    original, card = privacy_of(folder), (folder / 'README.md').read_text()
    plan = plan_once(tiny.config(**SETTINGS[kind]), NUMBER)
    truth = statement.recompute(original) if plan.epsilon is not None else None

    def rebuild(config, number):
        """The method's own plan for this N, but for the search for the noise."""
        if number == NUMBER:
            return plan
        with mock.patch.object(tiny, 'NUM_EXAMPLES', number):
            other = tiny.plan(config)
        noise = {m.name: m.noise_multiplier for m in plan.mechanisms}
        settled = tuple(
            dataclasses.replace(m, noise_multiplier=noise[m.name])
            for m in other.mechanisms
        )
        stated = dataclasses.replace(plan, mechanisms=settled, num_examples=number)
        return dataclasses.replace(stated, overflow_delta=other.overflow_delta)

    # Epsilon as of the true event: whoever edits one field must be caught without it.
    def check(stated):
        return check_statement(stated, card, config, rebuild, lambda _: truth)

    assert all(c.passed is not False for c in check(original))
    all_edits = list(edits(original))
    assert len(all_edits) > 300
    survivors = [
        where
        for where, stated in all_edits
        if all(c.passed is not False for c in check(json.loads(json.dumps(stated))))
    ]
    assert survivors == []


@pytest.mark.parametrize(
    ('change', 'caught_by'),
    [
        (lambda p: p.update(epsilon=p['epsilon'] - 1e-4), 'epsilon by PLD'),
        (lambda p: p.update(epsilon_rdp=p['epsilon_rdp'] / 2), 'epsilon by Renyi DP'),
        (lambda p: p.update(delta=1e-6), 'plan'),
        (lambda p: p.update(guarantee=FIXED_ENTROPY), 'README.md'),
        (lambda p: p['mechanisms'].clear(), 'plan'),
        (lambda p: p['dp_event']['events'].clear(), 'plan'),
        (lambda p: p['mechanisms'][0].update(noise_multiplier=9.0), 'dp_event'),
        (lambda p: p.update(num_examples=True), 'plan'),
    ],
)
def test_the_command_rejects_an_edit_and_says_where(copied, change, caught_by):
    rewrite(copied / 'privacy.json', change)
    outcome = call(copied)
    assert outcome.code == 1
    assert any(
        line.startswith('FAIL') and caught_by in line
        for line in outcome.out.splitlines()
    )
    assert 'verdict: REJECTED' in outcome.out


def test_a_lie_that_is_told_everywhere_is_caught_by_all_accountants(copied):
    # Two thirds of the noise, in mechanism, event and everything but epsilon.
    def change(privacy):
        sigma = privacy['mechanisms'][0]['noise_multiplier'] * 2 / 3
        privacy['mechanisms'][0]['noise_multiplier'] = sigma
        event = privacy['dp_event']['events'][0]['event']
        event['noise_multiplier'] = sigma

    rewrite(copied / 'privacy.json', change)
    found = failed(copied)
    assert {name for name in found if name.startswith('epsilon')} == {
        'epsilon by PLD',
        'epsilon by Renyi DP',
        'epsilon independently',
    }
    assert 'plan' in found and 'dp_event' not in found


def test_the_third_accountant_does_not_believe_the_first_two():
    privacy = privacy_of(made('mixed'))
    config = from_public_dict(json.loads((made('mixed') / 'config.json').read_text()))
    plan = plan_once(tiny.config(**SETTINGS['mixed']), NUMBER)
    true = statement.recompute(privacy)
    for factor in (0.98, 1.02):  # the other two are wrong and privacy.json with them
        wrong = dataclasses.replace(plan, epsilon=round(0.1 / factor, 4))
        lie = statement.Epsilons(wrong.epsilon, true.rdp, true.bounds)
        checks = check_statement(
            wrong.to_json(), '', config, lambda *_, w=wrong: w, lambda _, e=lie: e
        )
        passed = {c.name: c.passed for c in checks}
        assert passed['plan']
        # Too high a statement is no lie.
        assert passed['epsilon independently'] == (factor < 1)


@pytest.mark.parametrize(
    'text',
    ['', '[]', '7', 'null', '{"a": 1', '{}', '{"num_examples": 40}', '[' * 10**5],
)
def test_no_content_of_privacy_json_is_too_strange(copied, text):
    (copied / 'privacy.json').write_text(text)
    assert failed(copied) & {'privacy.json', 'plan'}


def test_json_that_two_readers_understand_differently_is_rejected(copied):
    path = copied / 'privacy.json'
    text = path.read_text()
    path.write_text(text.replace('{', '{"epsilon": 0.1,', 1))
    assert failed(copied) == {'privacy.json'}
    path.write_text(text.replace('"overflow_delta": 0.0', '"overflow_delta": NaN'))
    assert failed(copied) == {'privacy.json'}


# --- the other files ------------------------------------------------------------------


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


# --- the command ----------------------------------------------------------------------


@pytest.mark.parametrize(
    'arguments',
    [(), ('--release=/no/such/folder',), ('--relase=x',), ('--release=.', 'stray')],
)
def test_a_question_that_makes_no_sense_has_status_2(arguments):
    outcome = tiny_runs.call(command.run, 'dpaf_jax.verify', *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith('error: ')


def test_an_empty_folder_is_rejected(tmp_path):
    assert call(tmp_path).code == 1


def test_the_help_says_what_is_not_checked():
    assert 'not the execution' in ' '.join(command.__doc__.split())


def test_an_event_of_anything_else_is_refused():
    other = {'class': 'ExponentialMechanismDpEvent', 'epsilon': 0.1}
    gauss = {'class': 'GaussianDpEvent', 'noise_multiplier': 3.0}
    for event in (
        other,
        {'class': 'LaplaceDpEvent', 'noise_multiplier': 0.0},
        {'class': 'NonPrivateDpEvent'},
        gauss | {'extra': 1},
        gauss | {'noise_multiplier': 0.0},
        {'class': 'SelfComposedDpEvent', 'event': gauss, 'count': 0},
        {'class': 'ComposedDpEvent', 'events': [gauss, other]},
        {'class': 'PoissonSampledDpEvent', 'sampling_probability': 1.5, 'event': gauss},
        None,
    ):
        with pytest.raises(ValueError, match='Poisson-sampled'):
            independent.queries_of(event)
