"""What a checkpoint gives back, and which one is refused."""

import contextlib
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.checkpoint import Checkpoints


def flip(path):
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(b ^ 0xFF for b in content[middle : middle + 8])
    path.write_bytes(content)


WAYS = {
    'missing': lambda path: path.unlink(),
    'empty': lambda path: path.write_bytes(b''),
    'cut': lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    'changed': flip,
    'another word': lambda path: path.write_bytes(
        path.read_bytes().replace(b'value_metadata', b'value_Metadata')
    ),
}


class TestCheckpoints:
    STATE = {'a': np.arange(6, dtype=np.float32), 'b': {'c': np.array(3, np.int32)}}  # noqa: RUF012
    OWNER = 'ab' * 32

    def make(self, folder, keep=2, owner=OWNER):
        return Checkpoints(folder / 'checkpoints', keep, owner)

    def scaled(self, factor):
        return jax.tree.map(lambda leaf: leaf * factor, self.STATE)

    def test_the_newest_comes_back_bit_for_bit_with_its_step(self, tmp_path):
        checkpoints = self.make(tmp_path)
        assert checkpoints.restore(self.STATE) is None
        for step in (8, 16):
            checkpoints.save(step, self.scaled(step))
        state, step = self.make(tmp_path).restore(self.STATE)
        assert step == 16
        jax.tree.map(np.testing.assert_array_equal, state, self.scaled(16))

    def test_the_last_few_are_kept(self, tmp_path):
        checkpoints = self.make(tmp_path, keep=2)
        for step in range(1, 6):
            checkpoints.save(step, self.STATE)
        names = {path.name for path in (tmp_path / 'checkpoints').iterdir()}
        assert names == {'4', '5'}

    def test_one_that_was_cut_off_does_not_count(self, tmp_path):
        self.make(tmp_path).save(8, self.STATE)
        folder = tmp_path / 'checkpoints'
        (folder / '16.orbax-checkpoint-tmp-0').mkdir()
        assert self.make(tmp_path).restore(self.STATE)[1] == 8

    def test_one_of_another_run_is_refused(self, tmp_path):
        self.make(tmp_path).save(8, self.STATE)
        with pytest.raises(
            UserError, match='checkpoints/8: this checkpoint belongs to'
        ):
            self.make(tmp_path, owner='cd' * 32).restore(self.STATE)

    @pytest.mark.parametrize(
        'like',
        [
            {'a': np.zeros(5, np.float32), 'b': {'c': np.zeros((), np.int32)}},
            {'a': np.zeros(6, np.float32), 'b': {'d': np.zeros((), np.int32)}},
            {'a': np.zeros(6, np.float32)},
        ],
        ids=['shape', 'name', 'missing'],
    )
    def test_one_of_another_structure_is_refused(self, tmp_path, like):
        self.make(tmp_path).save(8, self.STATE)
        with pytest.raises(
            UserError, match='checkpoints/8: this checkpoint is damaged'
        ):
            self.make(tmp_path).restore(like)

    def test_a_single_changed_bit_is_noticed(self, tmp_path):
        self.make(tmp_path).save(8, self.STATE)
        files = ocp.StandardCheckpointer()
        content = files.restore(tmp_path / 'checkpoints' / '8' / 'default')
        content['state']['a'] = np.nextafter(content['state']['a'], np.float32(9))
        files.save(tmp_path / 'checkpoints' / '8' / 'default', content, force=True)
        files.close()
        with pytest.raises(UserError, match='damaged .*checksum'):
            self.make(tmp_path).restore(self.STATE)

    @pytest.mark.parametrize('way', WAYS)
    def test_whichever_file_is_damaged_nothing_else_comes_back(self, tmp_path, way):
        self.make(tmp_path).save(8, self.STATE)
        whole, refused = tmp_path / 'whole', 0
        (tmp_path / 'checkpoints').rename(whole)
        for path in [path for path in whole.rglob('*') if path.is_file()]:
            shutil.rmtree(tmp_path / 'checkpoints', ignore_errors=True)
            shutil.copytree(whole, tmp_path / 'checkpoints')
            WAYS[way](tmp_path / 'checkpoints' / path.relative_to(whole))
            try:
                with contextlib.closing(self.make(tmp_path)) as checkpoints:
                    state, _ = checkpoints.restore(self.STATE)
            except UserError as error:
                assert 'checkpoints/8: this checkpoint is damaged' in str(error)
                refused += 1
            else:  # Orbax needs not every file
                jax.tree.map(np.testing.assert_array_equal, state, self.STATE)
        assert refused

    def test_a_folder_without_its_files_is_damaged(self, tmp_path):
        self.make(tmp_path).save(8, self.STATE)
        for path in (tmp_path / 'checkpoints' / '8').rglob('*'):
            if path.is_file():
                path.unlink()
        with pytest.raises(UserError, match='this checkpoint is damaged'):
            self.make(tmp_path).restore(self.STATE)

    @pytest.mark.parametrize('error', [PermissionError, MemoryError, AttributeError])
    def test_nobody_is_told_to_delete_one_that_is_only_out_of_reach(
        self, tmp_path, monkeypatch, error
    ):
        checkpoints = self.make(tmp_path)
        checkpoints.save(8, self.STATE)

        def fails(*args, **options):
            raise error('for another reason')

        monkeypatch.setattr(checkpoints._manager, 'restore', fails)
        with pytest.raises(error, match='another reason'):
            checkpoints.restore(self.STATE)

    def test_without_the_newest_the_one_before_is_used(self, tmp_path):
        checkpoints = self.make(tmp_path)
        for step in (8, 16):
            checkpoints.save(step, self.scaled(step))
        shutil.rmtree(tmp_path / 'checkpoints' / '16')
        assert self.make(tmp_path).restore(self.STATE)[1] == 8

    def test_a_disk_that_is_full_is_said(self, tmp_path, monkeypatch):
        checkpoints = self.make(tmp_path)

        def full(*args, **options):
            raise OSError(28, 'No space left on device')

        monkeypatch.setattr(checkpoints._manager, 'save', full)
        with pytest.raises(UserError, match='step 8 could not be written .*No space'):
            checkpoints.save(8, self.STATE)
