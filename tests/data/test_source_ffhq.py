"""FFHQ: pictures and the features JSON."""

import gzip
import json
import pathlib
from typing import Any

import pytest
from sources import (
    make_config,
    pixels_of,
    prepared,
    refused,
    rows,
    write_picture,
)

from dpaf_jax import data
from dpaf_jax.config import DataConfig


class TestFfhq:
    def faces(self, i: int) -> list[dict[str, Any]]:
        genders = ('female', 'male')
        first = {'faceAttributes': {'gender': genders[i % 2]}}
        other = {'faceAttributes': {'gender': genders[(i + 1) % 2]}}
        return [] if i == 5 else [first, other]

    def config(self, root: pathlib.Path, form: str) -> DataConfig:
        """Twenty pictures with two faces each, but number 5, which has none."""
        records = [{'id': i, 'faces': self.faces(i)} for i in range(25)]
        lines = '\n'.join(map(json.dumps, records)) + '\n'
        for i in range(20):
            write_picture(root / f'{i // 10 * 10:05d}' / f'{i:05d}.png', i)
        path = root / f'features{form}'
        if form == '':
            (path / 'json').mkdir(parents=True)
            for i in range(20):
                (path / 'json' / f'{i:05d}.json').write_text(json.dumps(self.faces(i)))
        elif form == '.jsonl.gz':
            path.write_bytes(gzip.compress(lines.encode()))
        else:
            path.write_text(lines if form == '.jsonl' else json.dumps(records))
        return make_config(
            source=f'ffhq:{root}',
            annotations=str(path),
            attribute='gender',
            image_size=8,
            channels=3,
            num_classes=2,
            test_fraction=0.3,
        )

    @pytest.mark.parametrize('form', ['', '.json', '.jsonl', '.jsonl.gz'])
    def test_the_first_face_counts_and_none_is_left_out(self, tmp_path, form):
        dataset = prepared(self.config(tmp_path / 'x', form), tmp_path)
        every = {pixels_of(i).tobytes(): i % 2 for i in range(20) if i != 5}
        assert rows(dataset.images) | rows(dataset.test_images) == set(every)
        assert [every[row.tobytes()] for row in dataset.images] == list(dataset.labels)

    def test_the_split_does_not_depend_on_sub_folders(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl')
        nested = prepared(config, tmp_path)
        for path in (tmp_path / 'x').rglob('*.png'):
            path.rename(tmp_path / 'x' / path.name)
        data.prepare(config, tmp_path / 'flat')
        flat = data.load(config, tmp_path / 'flat')
        assert flat.manifest.checksum == nested.manifest.checksum

    def test_no_annotations(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl')
        for path in ('', '/no/such/file'):
            bad = DataConfig(**vars(config) | {'annotations': path})
            refused(bad, tmp_path, 'config.data.annotations')

    @pytest.mark.parametrize('form', ['', '.jsonl'])
    def test_a_picture_without_a_record(self, tmp_path, form):
        config = self.config(tmp_path / 'x', form)
        write_picture(tmp_path / 'x' / '00099.png', 0)
        refused(config, tmp_path, '00099.*Complete the annotations, or remove')

    def test_one_number_twice(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl')
        write_picture(tmp_path / 'x' / '00003.png', 0)
        refused(config, tmp_path, 'holds picture 00003 twice')

    def test_a_name_that_is_no_number(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl')
        write_picture(tmp_path / 'x' / 'cover.png', 0)
        refused(config, tmp_path, 'cover.png: is not named by a number')

    @pytest.mark.parametrize(
        ('line', 'match'),
        [
            ('{"id": 3, "fa', 'line 4: is not JSON'),
            ('{"id": 3}', 'line 4: has no id or faces'),
            ('[]', 'line 4: has no id or faces'),
            ('{"id": 2, "faces": []}', 'line 4: record 00002 is there twice'),
            ('{"id": 3, "faces": [{}]}', 'record 00003 is malformed'),
            (
                '{"id": 3, "faces": [{"faceAttributes": {"gender": "?"}}]}',
                'record 00003 is malformed',
            ),
        ],
    )
    def test_a_bad_record_is_named(self, tmp_path, line, match):
        config = self.config(tmp_path / 'x', '.jsonl')
        path = tmp_path / 'x' / 'features.jsonl'
        lines = path.read_text().splitlines()
        path.write_text('\n'.join([*lines[:3], line, *lines[4:]]))
        refused(config, tmp_path, match)

    def test_a_truncated_gzip_file(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl.gz')
        path = tmp_path / 'x' / 'features.jsonl.gz'
        path.write_bytes(path.read_bytes()[:-20])
        refused(config, tmp_path, 'features.jsonl.gz')

    def test_the_real_features(self, data_dir, tmp_path):
        for i in range(40):
            write_picture(tmp_path / 'x' / f'{i:05d}.png', i)
        config = make_config(
            source=f'ffhq:{tmp_path}/x',
            annotations=f'{data_dir}/ffhq_features_first2000.jsonl.gz',
            attribute='gender',
            image_size=8,
            num_classes=2,
        )
        dataset = prepared(config, tmp_path)
        with gzip.open(config.annotations, 'rt') as file:
            records = [json.loads(next(file)) for _ in range(40)]
        faces = sum(bool(record['faces']) for record in records)
        assert len(dataset.images) + len(dataset.test_images) == faces
