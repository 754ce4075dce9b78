"""A synthetic data set as a Parquet file that the Hugging Face Hub reads."""

import io
import json
import pathlib

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny_runs
import yaml
from PIL import Image

from dpaf_jax import sample
from dpaf_jax.release import parquet
from dpaf_jax.release.bundle import load_release

RELEASES = pathlib.Path(__file__).parents[1] / 'fixtures' / 'releases'


def call(*args: str) -> tiny_runs.Outcome:
    release = f'--release={RELEASES / "digits"}'
    return tiny_runs.call(sample.run, 'dpaf_jax.sample', release, '--num=20', *args)


def front_matter(card: pathlib.Path) -> dict:
    return yaml.safe_load(card.read_text().split('---\n')[1])


def test_images_and_labels_are_those_of_the_release(tmp_path):
    outcome = call('--seed=3', f'--out={tmp_path}/set/digits.parquet')
    assert (outcome.code, outcome.err) == (0, '')
    images, labels = load_release(RELEASES / 'digits').sample(20, seed=3)
    read = pq.read_table(tmp_path / 'set' / 'digits.parquet')
    assert read.column('label').to_pylist() == labels.tolist()
    rows = read.column('image').to_pylist()
    decoded = [np.asarray(Image.open(io.BytesIO(row['bytes']))) for row in rows]
    np.testing.assert_array_equal(np.stack(decoded)[..., None], images)
    features = json.loads(read.schema.metadata[b'huggingface'])['info']['features']
    assert features['image'] == {'_type': 'Image'}
    assert features['label']['names'] == [str(k) for k in range(10)]


def test_the_card_says_epsilon_method_and_limits_and_is_what_the_hub_reads(tmp_path):
    call(f'--out={tmp_path}/digits.parquet')
    card = tmp_path / 'README.md'
    fields, text = front_matter(card), card.read_text()
    assert fields['configs'][0]['data_files'][0]['path'] == 'digits.parquet'
    assert fields['size_categories'] == ['n<1K']
    label = fields['dataset_info']['features'][1]['dtype']['class_label']
    assert label['names'] == {str(k): str(k) for k in range(10)}
    privacy = json.loads((RELEASES / 'digits' / 'privacy.json').read_text())
    for words in (
        f'ε: {privacy["epsilon"]}', f'δ: {privacy["delta"]:g}', 'by dpaf with',
        'not one person', '## Limits', 'certified',
    ):  # fmt: skip
        assert words in text
    assert str(RELEASES) not in text


def test_a_readme_of_somebody_elses_stays(tmp_path):
    (tmp_path / 'README.md').write_text('# Mine\n')
    outcome = call(f'--out={tmp_path}/digits.parquet')
    assert outcome.code == 2 and 'folder of its own' in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ['README.md']
    assert (tmp_path / 'README.md').read_text() == '# Mine\n'


def test_an_earlier_set_and_its_card_are_kept(tmp_path):
    """The owner may have added a licence to it."""
    call(f'--out={tmp_path}/digits.parquet')
    card = (tmp_path / 'README.md').read_text()
    assert 'digits.parquet: exists' in call(f'--out={tmp_path}/digits.parquet').err
    assert 'README.md: exists' in call(f'--out={tmp_path}/more.parquet').err
    assert (tmp_path / 'README.md').read_text() == card
    assert call(f'--out={tmp_path}/more/more.parquet').code == 0


def test_without_its_card_a_set_does_not_stay(tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(28, 'No space left on device', str(path))

    monkeypatch.setattr(parquet, 'write_text', full)
    assert call(f'--out={tmp_path}/digits.parquet').code == 2
    assert not list(tmp_path.iterdir())


def test_without_pyarrow_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__('sys').modules, 'pyarrow', None)
    outcome = call(f'--out={tmp_path}/digits.parquet')
    assert outcome.code == 2
    assert 'pip install' in outcome.err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(('number', 'size'), [(1, 0), (999, 0), (1000, 1), (10**5, 3)])
def test_sizes_have_the_hubs_names(number, size):
    from dpaf_jax.release import dataset_card

    assert dataset_card.size_category(number) == dataset_card.SIZES[size]


@pytest.mark.parametrize('name', ['it\'s "q"', 'a\\b', 'no', 'α: β', '1'])
def test_any_name_of_a_class_is_read_back_from_the_card(name):
    from dpaf_jax.release import dataset_card

    text = dataset_card._feature('label', {'_type': 'ClassLabel', 'names': [name, 'x']})
    (read,) = yaml.safe_load(text)
    assert read['dtype']['class_label']['names'] == {'0': name, '1': 'x'}
