"""The config at the door: every mistake is named, every value keeps its type."""

import dataclasses
import json
import math
import typing

import numpy as np
import pytest

from configs.default import get_config
from dpaf_jax.config import (
    METHOD_SECTIONS,
    Config,
    from_config_dict,
    from_public_dict,
    public_dict,
    to_dict,
)
from dpaf_jax.config.reading import read_config
from dpaf_jax.runtime.errors import UserError

SOME_VALUE_OF_ANOTHER_TYPE = {int: 1.5, float: 'many', str: 7, bool: 'maybe'}


def changed(**fields):
    config = get_config()
    config.unlock()
    config.update_from_flattened_dict(
        {name.replace('__', '.'): value for name, value in fields.items()}
    )
    return config


def refused(**fields) -> str:
    with pytest.raises(UserError) as error:
        from_config_dict(changed(**fields))
    return str(error.value)


def leaves(cls=Config, path=()):
    for name, hint in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(hint):
            yield from leaves(hint, (*path, name))
        else:
            yield '.'.join((*path, name)), hint


def limits(path):
    *parents, name = path.split('.')
    cls = Config
    for parent in parents:
        cls = typing.get_type_hints(cls)[parent]
    return next(f.metadata for f in dataclasses.fields(cls) if f.name == name)


LEAVES = dict(leaves())
CHOICES = [name for name in LEAVES if 'choices' in limits(name)]
BOUNDED = [name for name in LEAVES if {'low', 'above', 'high'} & set(limits(name))]


def outside():
    """(field, value) for every bound of every number, and what is not finite."""
    for name in BOUNDED:
        bounds, number = limits(name), LEAVES[name]
        yield name, number(bounds['above'] if 'above' in bounds else bounds['low'] - 1)
        if 'high' in bounds:
            yield name, number(bounds['high'] + 1)
        if number is float:
            yield from ((name, math.nan), (name, math.inf))


def test_the_default_config_has_exactly_the_typed_fields():
    def flat(group, path=''):
        for name, value in group.items():
            if isinstance(value, dict):
                yield from flat(value, f'{path}{name}.')
            else:
                yield f'{path}{name}'

    assert set(flat(get_config().to_dict())) == set(LEAVES)


@pytest.mark.parametrize('name', list(LEAVES))
def test_what_is_said_of_a_field_can_be_read_alone(name):
    """Pages and tables quote one row, without its section or the row above."""
    doc = limits(name)['doc']
    assert doc[0].isupper() and doc.endswith('.') and len(doc.split()) > 1
    assert not doc.startswith(('Of ', 'On ', 'Adam')) and '...' not in doc


def test_typed_objects_and_dicts_are_inverse():
    config = from_config_dict(get_config())
    assert from_public_dict(to_dict(config)) == config


@pytest.mark.parametrize('name', list(LEAVES))
def test_a_value_of_another_type_is_refused_by_name(name):
    hint = LEAVES[name]
    value = SOME_VALUE_OF_ANOTHER_TYPE.get(hint, 'a,b')
    config = get_config()
    with config.ignore_type():
        config.update_from_flattened_dict({name: value})
    with pytest.raises(UserError, match=rf'^config\.{name}: is {value!r}\. \w+'):
        from_config_dict(config)


@pytest.mark.parametrize('name', CHOICES)
def test_a_word_that_is_no_choice_is_refused_with_the_choices(name):
    message = refused(**{name.replace('.', '__'): 'something'})
    assert message.startswith(f"config.{name}: is 'something'. Choose one of ")
    for choice in limits(name)['choices']:
        assert repr(choice) in message


@pytest.mark.parametrize(('name', 'value'), list(outside()))
def test_a_number_out_of_range_is_refused_by_name(name, value):
    message = refused(**{name.replace('.', '__'): value})
    assert message.startswith(f'config.{name}: is {value}. It must be ')


@pytest.mark.parametrize('name', [n for n in BOUNDED if 'low' in limits(n)])
def test_the_lowest_value_is_allowed(name):
    value = LEAVES[name](limits(name)['low'])
    from_config_dict(changed(**{name.replace('.', '__'): value}), is_open=True)


@pytest.mark.parametrize('name', ['num_classes', 'image_size', 'channels'])
def test_a_field_that_the_data_decide_is_refused_where_nobody_looks_at_them(name):
    message = refused(**{f'data__{name}': 0})
    assert message.startswith(f'config.data.{name}: is 0. It must be at least ')


def test_an_unknown_field_is_refused_with_the_fields_there_are():
    message = refused(privacy__epsilonn=1.0)
    assert message.startswith(
        'config.privacy.epsilonn: no such field. Did you mean epsilon? F'
    )
    assert 'epsilon,' in message


def test_a_missing_field_is_refused():
    config = get_config()
    del config.privacy.delta
    with pytest.raises(UserError, match=r'^config\.privacy\.delta: is missing'):
        from_config_dict(config)


def test_a_value_in_the_place_of_a_group_is_refused():
    config = get_config()
    with config.ignore_type():
        config.privacy = 3
    with pytest.raises(UserError, match=r'^config\.privacy: is 3, not a group'):
        from_config_dict(config)


@pytest.mark.parametrize('epsilon', [0.0, -1.0, math.nan, -math.inf])
def test_epsilon_must_be_above_zero(epsilon):
    assert refused(privacy__epsilon=epsilon).startswith('config.privacy.epsilon: is ')


@pytest.mark.parametrize('delta', [-1e-9, 1.0, 2.0, math.nan])
def test_delta_must_be_a_probability_below_one(delta):
    assert refused(privacy__delta=delta).startswith('config.privacy.delta: is ')


def test_a_delta_beyond_what_is_proven_of_the_noise_is_refused():
    for delta in (1e-13, 1e-16):
        message = refused(privacy__delta=delta)
        assert message.startswith(f'config.privacy.delta: is {delta:g}; the law of')
    from_config_dict(changed(privacy__delta=1e-12))


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused_at_the_door(value):
    """It would be found when the release is written, after the whole training."""
    message = refused(dpdm__p_mean=value)
    assert message.startswith(f'config.dpdm.p_mean: is {value}. It must be ')
    prior = (value,) + (0.1,) * 9
    assert refused(data__class_prior=prior).startswith('config.data.class_prior: is ')


def test_images_of_two_channels_are_refused():
    message = refused(data__channels=2)
    assert message.startswith('config.data.channels: is 2. Use 1 for grey or 3')


def test_delta_zero_is_refused_because_noise_is_gaussian():
    message = refused(privacy__delta=0.0)
    assert message.startswith('config.privacy.delta: is 0') and 'Gaussian' in message
    config = from_config_dict(changed(privacy__delta=0.0, privacy__epsilon=math.inf))
    assert config.privacy.delta == 0


@pytest.mark.parametrize(
    'prior', [(0.5, 0.5), (0.2,) * 10, (0.0, 1.0) + (0.0,) * 8, (-0.1, 1.1)]
)
def test_a_class_prior_that_is_none_is_refused(prior):
    assert refused(data__class_prior=prior).startswith('config.data.class_prior: is (')


def test_the_prior_is_uniform_unless_given():
    uniform = from_config_dict(get_config()).data.prior
    assert uniform == (0.1,) * 10
    given = (0.91, *(0.01,) * 9)
    assert from_config_dict(changed(data__class_prior=given)).data.prior == given


@pytest.mark.parametrize('source', ['', 'mnist', 'folder:', 'hdf5:/x', 'tfds'])
def test_a_source_of_no_known_kind_is_refused(source):
    message = refused(data__source=source)
    assert message.startswith(f'config.data.source: is {source!r}. Use ')


@pytest.mark.parametrize(
    ('source', 'public'),
    [
        ('digits', 'digits'),
        ('tfds:mnist', 'tfds:mnist'),
        ('tfds:mnist@/secret/prepared', 'tfds:mnist'),
        ('folder:/secret/images', 'folder'),
        ('npz:/secret/images.npz', 'npz'),
        ('celeba:/secret/celeba.tar', 'celeba'),
        ('ffhq:/secret/ffhq', 'ffhq'),
    ],
)
def test_the_public_config_has_no_path(source, public):
    config = from_config_dict(
        changed(
            data__source=source,
            data__cache='/secret/cache',
            data__annotations='/secret/json',
            evaluation__inception_weights='/secret/weights.pth',
        )
    )
    fields = public_dict(config)
    assert fields['data']['source'] == public
    assert 'secret' not in json.dumps(fields)


# What people write in them is public by its meaning: names, columns, settings.
PUBLIC_TEXTS = {
    'method',
    'data.columns',
    'data.label',  # of tables; else the default is released
    'data.class_names',
    'data.group',
    'data.window',
    'privacy.budgets',
    'networks.layers',
    'dpaf.taps',
}


def free_texts(cls, prefix=''):
    """The names of the fields that take any text."""
    for name, hint in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(hint):
            yield from free_texts(hint, f'{prefix}{name}.')
        elif hint is str and 'choices' not in cls.__dataclass_fields__[name].metadata:
            yield prefix + name


@pytest.mark.parametrize('field', sorted({*free_texts(Config)} - PUBLIC_TEXTS))
def test_no_text_is_released_but_what_is_public_by_its_meaning(field):
    section, name = field.split('.')
    config = from_config_dict(changed(method='dpgen' if section == 'dpgen' else 'dpaf'))
    part = dataclasses.replace(getattr(config, section), **{name: 'npz:/secret/file'})
    fields = public_dict(dataclasses.replace(config, **{section: part}))
    assert name in fields[section] and 'secret' not in json.dumps(fields)


@pytest.mark.parametrize('budgets', ['patient 4711', 'rest,/home/x', '0.1,,0.1', '1%%'])
def test_budgets_are_numbers_also_where_one_mechanism_takes_everything(budgets):
    message = refused(method='dp_merf', privacy__budgets=budgets)
    assert message.startswith('config.privacy.budgets: has the entry ')


def test_a_release_needs_the_fields_of_its_own_method_alone():
    fields = public_dict(from_config_dict(get_config()))
    assert fields['method'] == 'dpaf' and 'dpaf' in fields
    without = {name: value for name, value in fields.items() if name != 'dpaf'}
    with pytest.raises(UserError, match=r'config\.dpaf: is missing'):
        from_public_dict(without)
    other = from_public_dict(without | {'method': 'another'})
    assert other.dpaf is None and 'dpaf' not in public_dict(other)


def test_the_public_config_is_strict_json_and_is_read_back():
    config = from_config_dict(changed(privacy__epsilon=math.inf))
    text = json.dumps(public_dict(config), allow_nan=False)
    others = dict.fromkeys(set(METHOD_SECTIONS) - {config.method})
    assert from_public_dict(json.loads(text)) == dataclasses.replace(config, **others)


def test_names_of_classes_are_their_numbers_or_what_is_declared():
    assert from_config_dict(changed(data__num_classes=3)).data.names == ('0', '1', '2')
    given = changed(data__num_classes=2, data__class_names='cat/big dog')
    assert from_config_dict(given).data.names == ('cat', 'big dog')


@pytest.mark.parametrize(
    ('names', 'why'),
    [
        ('cat', 'with 1 of them'),
        ('a/a', 'with a name twice'),
        ('a/', "where '' is empty"),
        ('?', 'with 1 of them'),
        ('a/b/c', 'with 3 of them'),
        ('a/.b', "where '.b' begins with a dot"),
        ('a/' + 'é' * 101, f"where '{'é' * 101}' is longer than 200 bytes"),
        ('a/ b', "where ' b' begins or ends with a blank"),
        ('a/b\n', "where 'b\\n' has a line break"),
        ('a/\x07b', "where '\\x07b' has a character that cannot be printed"),
    ],
)
def test_names_that_are_none(names, why):
    message = refused(data__num_classes=2, data__class_names=names)
    assert message.startswith(
        f'config.data.class_names: is {names!r}, {why}. Give 2 different'
    )


@pytest.mark.parametrize('source', ['digits', 'folder:/x', 'celeba:/x', 'ffhq:/x'])
def test_a_part_is_of_records_with_fixed_places_alone(source):
    kind = source.partition(':')[0]
    message = refused(data__source=source, data__subset=5)
    assert message.startswith(
        f'config.data.subset: is 5, but a file more or less in {kind}'
    )
    for fixed in ('npz:/x.npz', 'tfds:mnist'):
        from_config_dict(changed(data__source=fixed, data__subset=5))


@pytest.mark.parametrize('window', ['4095', '5:5', '9:2', 'a:b', '0:inf', ':'])
def test_windows_that_are_none(window):
    message = refused(data__window=window)
    assert message.startswith(f'config.data.window: is {window!r}. Write low:high')


def test_a_window_is_two_numbers():
    data = from_config_dict(changed(data__window='-1000:3000.5')).data
    assert data.grey_levels == (-1000.0, 3000.5)
    assert from_config_dict(changed()).data.grey_levels is None


@pytest.mark.parametrize(('num', 'there', 'number'), [
    (500, 1_000_000, 500), (0, 600, 20_000), (0, 31_000, 31_000), (0, 200_000, 60_000),
])  # fmt: skip
def test_how_many_samples_goes_by_the_records_unless_it_is_said(num, there, number):
    assert from_config_dict(changed(samples__num=num)).num_samples(there) == number


def test_ndpdc_draws_each_of_its_images_once():
    fields = {'method': 'ndpdc', 'ndpdc__images_per_class': 5, 'ndpdc__parts': 2}
    open_number = from_config_dict(changed(**fields, samples__num=0))
    assert open_number.num_samples(1_000_000) == 10 * 5 * 2**2
    assert from_config_dict(changed(**fields, samples__num=7)).num_samples(1) == 7


def test_numbers_of_numpy_are_numbers():
    fields = to_dict(from_config_dict(get_config()))
    fields['privacy']['epsilon'] = np.float64(3.0)
    assert type(read_config(fields).privacy.epsilon) is float


def test_private_images_in_place_of_a_config_are_in_no_message():
    with pytest.raises(UserError, match='config: is of type ndarray') as error:
        from_config_dict(np.full((1, 2, 2, 1), 247))
    assert '247' not in str(error.value)


def test_a_path_is_no_config():
    with pytest.raises(
        UserError, match='config: is of type str, no ConfigDict. Give what'
    ):
        from_config_dict('configs/x.py')
