"""Runs are made once, wherever they stand; several at a time; one may fail or be stopped."""

import dataclasses
import hashlib
import pathlib
import signal
import stat
import sys

import numpy as np
import pytest
import tiny_runs
from finished_runs import finish, setup

from dpaf_jax.attack.target import Target
from dpaf_jax.evaluation import suite
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json, write_json
from dpaf_jax.tables import __main__ as command
from dpaf_jax.tables import data_sets
from dpaf_jax.tables.execute import Outcome, execute, wanted
from dpaf_jax.tables.fill import fill
from dpaf_jax.tables.papers import TABLES
from dpaf_jax.tables.runs import Run, Setup, cells
from dpaf_jax.tables.scales import SCALES

ROOT = pathlib.Path(__file__).parents[2]


def runs_of(name, made):
    return [run for cell in cells(TABLES[name], made) for run in cell.runs]


def test_a_run_is_known_by_its_config_and_nothing_else(tmp_path):
    made = setup(tmp_path)
    (one, *_) = runs_of('dpaf/1', made)
    same = dataclasses.replace(one, lacks='x')
    assert same.key == one.key
    for changed in (
        {'settings': {**one.settings, 'privacy.epsilon': 3.0}},
        {'generator': 1},
        {'file': 'dp_merf'},
    ):
        assert dataclasses.replace(one, **changed).key != one.key


def test_tables_share_their_runs(tmp_path):
    made = setup(tmp_path)
    keys = {name: {run.key for run in runs_of(name, made)} for name in TABLES_SHARED}
    first, second = keys.values()
    assert len(first & second) > 20


TABLES_SHARED = ('dpaf/1', 'ours/methods')


def test_an_unknown_field_is_an_error(tmp_path):
    (one, *_) = runs_of('dpaf/1', setup(tmp_path))
    with pytest.raises(KeyError):
        _ = dataclasses.replace(one, settings={'dpaf.nonsense': 1}).config


def test_the_command_is_what_the_main_job_takes(tmp_path):
    (one, *_) = runs_of('dpba_wgan/3', setup(tmp_path))
    main, attack = one.commands
    assert main[1:3] == ['-m', 'dpaf_jax.main'] and main[3].startswith('--config=conf')
    assert f'--workdir={one.workdir.root}' in main
    (cache,) = [each for each in main if each.startswith('--config.data.cache=')]
    assert f'--data={cache.partition("=")[2]}' in attack


def test_a_run_on_another_file_of_the_same_name_is_another_run(tmp_path):
    made = setup(tmp_path)
    (before, *_) = (run for run in runs_of('ours/methods', made) if not run.reads)
    caches = [before.commands[0]]
    (made.data / 'mnist.npz').write_bytes(b'other images')
    (after, *_) = (run for run in runs_of('ours/methods', made) if not run.reads)
    assert after.config.to_dict() == before.config.to_dict() and after.key != before.key
    caches.append(after.commands[0])
    kept = [
        next(word for word in words if word.startswith('--config.data.cache='))
        for words in caches
    ]
    assert kept[0] != kept[1]


def test_names_of_runs_tell_nothing_of_the_data_to_who_lacks_the_salt(tmp_path):
    """Else whoever knows all other records could test for one by its checksum."""
    data, digest = tmp_path / 'x.npz', hashlib.sha256(b'records').hexdigest()
    data.write_bytes(b'records')
    here, there = tmp_path / 'here', tmp_path / 'there'
    mark = data_sets.mark_of(str(data), here)
    assert data_sets.mark_of(str(data), here) == mark
    assert data_sets.mark_of(str(data), there) != mark
    assert mark not in digest
    (salt,) = here.iterdir()
    assert len(salt.read_bytes()) == 32 and here.stat().st_mode & 0o077 == 0
    made = setup(tmp_path)
    for run in runs_of('ours/records', made):
        words = ' '.join(run.commands[0])
        assert hashlib.sha256(b'').hexdigest()[:12] not in words  # of the given file


def test_weights_of_fid_change_no_run_but_what_is_left_to_do(tmp_path):
    """A run that was made without them is evaluated again, not made anew."""
    (one, *_) = runs_of('dpaf/1', setup(tmp_path))
    weights = tmp_path / 'w.pth'
    weights.write_bytes(b'weights')
    with_fid = dataclasses.replace(one, inception_weights=str(weights))
    assert with_fid.key == one.key
    flag = f'--config.evaluation.inception_weights={weights}'
    assert flag in with_fid.commands[0] and flag not in one.commands[0]
    finish(one, 0.5)
    assert one.is_done and not with_fid.is_done
    evaluated = read_json(one.workdir.evaluation)
    known = hashlib.sha256(b'weights').hexdigest()
    for sha256, is_done in (('of others', False), (known, True)):
        found = {**evaluated, 'inception_sha256': sha256}
        write_json(one.workdir.evaluation, found)
        assert with_fid.is_done == is_done


def test_a_run_is_evaluated_again_once_what_it_lacked_is_installed(
    tmp_path, monkeypatch
):
    (one, *_) = runs_of('dpaf/1', setup(tmp_path))
    finish(one, 0.5)
    evaluated = read_json(one.workdir.evaluation)
    write_json(one.workdir.evaluation, {**evaluated, 'lacked': ['no XGBoost']})
    for notices, is_done in ((['no XGBoost'], True), ([], False)):
        monkeypatch.setattr(suite, 'notices', lambda config, told=notices: told)
        assert one.is_done == is_done


def test_parts_are_disjoint_and_do_not_depend_on_what_is_done(tmp_path):
    runs = runs_of('ours/methods', setup(tmp_path))
    shares = [{run.key for run in wanted(runs, (i, 3))} for i in (1, 2, 3)]
    assert sum(map(len, shares)) == len(set.union(*shares)) == len(wanted(runs, (1, 1)))
    finish(wanted(runs, (2, 3))[0], 0.5)
    again = [{run.key for run in wanted(runs, (i, 3))} for i in (1, 2, 3)]
    assert (again[0], again[2]) == (shares[0], shares[2]) and again[1] < shares[1]


def test_of_runs_that_tables_share_the_attacked_one_is_made(tmp_path):
    """Else a table of attacks would stay empty: its run is done, and nobody attacks it."""
    attacked = {run.key for run in runs_of('dpba_wgan/3', setup(tmp_path))}
    together = [
        run
        for name in ('dpba_wgan/3', 'dpba_wgan/1', 'ours/methods')
        for run in runs_of(name, setup(tmp_path))
    ]
    shared = {run.key for run in together if not run.attack} & attacked
    assert shared
    made = wanted(together, (1, 1))
    assert {run.key for run in made if run.attack} == attacked


def test_a_part_writes_no_table_while_others_may(tmp_path, monkeypatch):
    def ended(todo, jobs, on_end, on_start):
        on_start(todo[0])
        on_end(Outcome(todo[0], 0, 1.0, ''))
        return []

    monkeypatch.setattr('dpaf_jax.tables.fill.execute', ended)
    table = TABLES['dpaf/1']
    fill([table], setup(tmp_path), 1, (1, 2))
    assert not list(tmp_path.rglob('table.md'))
    fill([table], setup(tmp_path), 1, (1, 1))
    assert list(tmp_path.rglob('table.md'))


def test_rows_are_run_alone(tmp_path, monkeypatch):
    run = []
    monkeypatch.setattr(
        'dpaf_jax.tables.fill.execute', lambda todo, *_: run.extend(todo) or []
    )
    tables = [TABLES['ours/methods']]
    fill(tables, setup(tmp_path), 1, (1, 1), ['DPDM', 'FETA'])
    assert {each.file for each in run} == {'dpdm', 'feta'}
    with pytest.raises(UserError, match=r"--row: is 'DP-DM'.* one of DPAF \| DPGEN \|"):
        fill(tables, setup(tmp_path), 1, (1, 1), ['DPDM', 'DP-DM'])


def test_runs_without_their_data_are_left_out(tmp_path):
    runs = runs_of('dpaf/1', setup(tmp_path))
    assert {run.lacks for run in runs} == {'', 'celeba64:gender', 'celeba64:hair'}
    assert not any(run.lacks for run in wanted(runs, (1, 1)))
    assert 'celeba or celeba.tar in --data' in data_sets.wanted('celeba64:gender')


def test_a_table_without_any_of_its_data_is_no_success(tmp_path):
    nothing = dataclasses.replace(setup(tmp_path), data=None)
    table = TABLES['dpgen/1']
    assert all(run.lacks for run in runs_of('dpgen/1', nothing))
    with pytest.raises(UserError, match='--data: has no data set of these tables'):
        fill([table], nothing, 1, (1, 1))
    assert fill([table], nothing, 0, (1, 1)) == []


# --- processes --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Scripted(Run):
    """A run of a few lines of Python in place of the main job."""

    code: str = ''

    @property
    def commands(self):
        return [[sys.executable, '-c', self.code]]


def scripted(out, code, generator=0):
    return Scripted('digits', '', {}, generator, (), '', None, out, code=code)


def test_a_run_that_fails_stops_no_other(tmp_path):
    good = [scripted(tmp_path, 'print("well")', i) for i in range(3)]
    bad = scripted(tmp_path, 'import sys; print("it broke"); sys.exit(2)', 3)
    told = []
    failed = execute([bad, *good], 2, told.append)
    assert len(told) == 4 and [each.status for each in failed] == [2]
    assert failed[0].reason == 'it broke'
    assert good[0].log.read_text() == 'well\n'


@pytest.mark.parametrize(
    ('jobs', 'visible', 'seen'),
    [
        (2, '3,5', {'3', '5'}),
        (4, '3,5', {'3', '5'}),
        (1, '3,5', {'3,5'}),
        (2, '', {''}),
    ],
)
def test_runs_at_a_time_have_a_card_each(tmp_path, monkeypatch, jobs, visible, seen):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
    line = 'import os, time; time.sleep(0.3); print(os.environ["CUDA_VISIBLE_DEVICES"])'
    runs = [scripted(tmp_path, line, i) for i in range(4)]
    assert not execute(runs, jobs, lambda outcome: None)
    assert {run.log.read_text().strip() for run in runs} == seen


def test_a_run_that_was_killed_says_so_and_one_in_use_is_no_failure(tmp_path):
    killed = scripted(tmp_path, 'import os; print("step 7"); os.kill(os.getpid(), 9)')
    in_use = scripted(tmp_path, 'import sys; sys.exit(144)', 1)
    outcomes = {o.run.key: o for o in execute([killed, in_use], 1, lambda _: None)}
    assert outcomes[killed.key].reason.startswith('killed by SIGKILL')
    assert 'SIGKILL' in killed.failure_file.read_text()
    assert outcomes[in_use.key].status == 144 and not in_use.failure_file.exists()


def test_several_run_at_a_time_and_no_more(tmp_path):
    line = 'import time; print(time.time()); time.sleep(0.5); print(time.time())'
    runs = [scripted(tmp_path, line, i) for i in range(4)]
    execute(runs, 2, lambda outcome: None)
    spans = [tuple(map(float, run.log.read_text().split())) for run in runs]
    starts = [start for start, _ in spans]
    together = [sum(a <= start < b for a, b in spans) for start in starts]
    assert max(together) == 2


def test_what_is_stopped_is_told_to_save(tmp_path):
    code = (
        'import signal, sys, time\n'
        'signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(143)))\n'
        'print("up", flush=True)\n'
        'time.sleep(60)'
    )
    run = scripted(tmp_path, code)

    def stop(*_):
        if run.log.exists() and 'up' in run.log.read_text():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            execute([run], 1, lambda outcome: None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert run.log.read_text().split() == ['up', 'saved']


# --- data -------------------------------------------------------------------------------


def test_the_first_records_alone(tmp_path):
    arrays = {
        'train_x': np.arange(40, dtype=np.uint8).reshape(10, 2, 2),
        'train_y': np.arange(10),
        'test_x': np.zeros((3, 2, 2), np.uint8),
        'test_y': np.arange(3),
    }
    np.savez(tmp_path / 'mnist.npz', **arrays)
    source = f'npz:{tmp_path}/mnist.npz'
    found, made = data_sets.first_records(source, 4, tmp_path / 'p')
    assert not made.path.exists()
    made.write()
    assert found['data.num_examples'] == 4
    assert stat.S_IMODE(made.path.parent.stat().st_mode) == 0o700  # private records
    with np.load(found['data.source'].partition(':')[2]) as there:
        np.testing.assert_array_equal(there['train_x'], arrays['train_x'][:4])
        assert len(there['train_y']) == 4 and len(there['test_x']) == 3
    arrays['train_x'] += 1
    np.savez(tmp_path / 'mnist.npz', **arrays)
    _, others = data_sets.first_records(source, 4, tmp_path / 'p')
    assert others.path != made.path  # so their runs are others, too
    with pytest.raises(UserError, match='--data: has no .npz file for 4 records'):
        data_sets.first_records('tfds:mnist', 4, tmp_path)


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--table=dpaf/77'], "--table: is 'dpaf/77'"),
        (['--table=dpaf/1', '--part=9/3'], "--part: is '9/3'"),
        (['--table=dpaf/1', '--data=/no/such/place'], '--data: /no/such/place is no'),
        (['--table=dpaf/1', '--inception_weights=/w.pth'], '/w.pth is no file'),
    ],
)
def test_a_mistake_is_one_line(flags, message):
    done = tiny_runs.call(command.run, 'dpaf_jax.tables', *flags)
    assert done.code == 2
    assert message in done.err and done.err.count('\n') == 1


def test_without_a_table_it_says_so_in_one_line_as_a_process_too():
    done = tiny_runs.run_python('-m', 'dpaf_jax.tables')
    assert done.returncode == 2
    assert '--table or --list is needed' in done.stderr and done.stderr.count('\n') == 1


# --- public images --------------------------------------------------------------------


def trans(tmp_path, scale, **files):
    for name in files:
        (tmp_path / 'given').mkdir(exist_ok=True)
        (tmp_path / 'given' / f'{name}.npz').touch()
    given = tmp_path / 'given' if files else None
    setup = Setup(scale, SCALES[scale], tmp_path / 'tables', given)
    every = cells(TABLES['dpaf/11'], setup)
    return {c.row.label: c.runs[0] for c in every if c.row.public}


def test_public_images_that_are_not_there_are_named(tmp_path):
    runs = trans(tmp_path, 'cpu')
    assert runs.keys() == {'Trans(D)', 'Trans(G + D)'}
    assert all(run.lacks for run in runs.values())


def test_a_row_starts_from_the_public_images_of_the_folder(tmp_path):
    (tmp_path / 'given' / 'celeba').mkdir(parents=True)
    runs = trans(tmp_path, 'cpu', cifar10=True)
    found = tmp_path / 'given' / 'cifar10.npz'
    for run in runs.values():
        assert run.config.dpaf.warm_start == f'npz:{found.resolve()}'
        assert run.config.dpaf.warm_start_classes == 10 and not run.lacks
    assert runs['Trans(D)'].config.dpaf.warm_start_parts == 'discriminator'
    assert runs['Trans(G + D)'].config.dpaf.warm_start_parts == 'both'


def test_at_smoke_photographs_stand_in(tmp_path):
    run = trans(tmp_path, 'smoke')['Trans(D)']
    run.reads.write()
    with np.load(run.reads.path) as made:
        assert made['train_x'].shape == (540, 16, 16) and set(made['test_y']) == {0, 1}
        assert made['train_x'].std() > 20


def test_the_file_of_an_attack_is_the_one_that_attacks_write(tmp_path):
    (one, *_) = runs_of('dpba_wgan/3', setup(tmp_path))
    nothing = np.zeros((1, 2, 2, 1), np.uint8)
    folder = one.workdir.nonprivate / 'attacks'
    target = Target(nothing, nothing, np.zeros(1, np.int32), nothing, {}, folder)
    assert target.write_json('gradient_inversion', {}) == one.attack_file
