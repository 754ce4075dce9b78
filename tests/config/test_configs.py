"""The configs of the repository: each loads, plans, and trains on data of its shape."""

import functools
import math
import pathlib

import numpy as np
import pytest
import tiny_runs
from ml_collections import ConfigDict

from dpaf_jax import methods
from dpaf_jax.config import from_config_dict
from dpaf_jax.config.schema import sections_of
from dpaf_jax.data import read_manifest
from dpaf_jax.methods.dpaf.phase1.labeller import steps_and_rate
from dpaf_jax.networks.architecture import make_architecture
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.plan import CERTIFIED, PrivacyPlan

PUBLIC_N = {
    'celeba32': 162770,
    'celeba64': 162770,
    'ffhq128': 62500,
}  # what the config leaves to the user
NAMES = (
    'digits',
    'mnist',
    'fashion_mnist',
    'svhn',
    'cifar10',
    'celeba32',
    'celeba64',
    'ffhq128',
    'lsun_bedroom',
)
ARGUMENTS = [
    *((name, '') for name in NAMES),
    *((name, 'one_shot') for name in NAMES),
    *((name, 'canonical') for name in NAMES),
    *((name, 'printed') for name in NAMES),
    ('celeba64', 'gender'),
    ('celeba64', 'hair'),
    ('celeba64', 'hair,printed'),
    ('celeba32', 'hair,canonical'),
]
SMALL = ('digits', 'mnist', 'fashion_mnist', 'svhn', 'cifar10')
PRINTED = [(name, argument) for name, argument in ARGUMENTS if 'printed' in argument]
LABELLED = [pair for pair in ARGUMENTS if pair[1] in ('', 'gender', 'hair')]
BATCHES = [pair for pair in ARGUMENTS if 'canonical' in pair[1]]
# With a labeller noise takes seconds to find.
ONE_OF_EACH = ('ffhq128', ''), ('digits', 'canonical')
SLOW = [*PRINTED, *(p for p in (*LABELLED, *BATCHES) if p not in ONE_OF_EACH)]
FAST = [pair for pair in ARGUMENTS if pair not in SLOW]


def planned(config: ConfigDict, name: str) -> PrivacyPlan:
    typed = from_config_dict(config)
    number = typed.data.num_examples or PUBLIC_N[name]
    return methods.get(typed.method).plan(typed, number)


@functools.cache
def quickly_planned(name: str, argument: str) -> PrivacyPlan:
    """The config's plan but for its noise."""
    with tiny_runs.without_accountant():
        return planned(tiny_runs.load_config(name, argument), name)


@pytest.mark.parametrize(('name', 'argument'), ARGUMENTS)
def test_it_loads_and_certifies_for_all_records(name, argument):
    plan = quickly_planned(name, argument)
    assert plan.guarantee == CERTIFIED
    stated = tiny_runs.load_config(name, argument).data.num_examples
    number = stated or PUBLIC_N[name]
    assert plan.num_examples == number and plan.delta < 1 / number


@pytest.mark.parametrize(('name', 'argument'), PRINTED)
def test_as_printed_there_are_three_queries_of_batches(name, argument):
    plan, batch = quickly_planned(name, argument), 24 if name in SMALL else 64
    assert [m.name for m in plan.mechanisms] == ['conv1', 'conv2', 'dpagg']
    assert plan['dpagg'].expected_batch_size == pytest.approx(batch)
    assert plan['conv2'].expected_batch_size == pytest.approx(8 * batch)
    assert plan['conv2'].steps == plan['dpagg'].steps // 8
    assert plan['dpagg'].capacity < plan.num_examples


@pytest.mark.parametrize(('name', 'argument'), BATCHES)
def test_canonical_is_a_labeller_and_some_hundred_small_batches(name, argument):
    labeller, dpagg = quickly_planned(name, argument).mechanisms
    assert (labeller.name, dpagg.name) == ('labeller', 'dpagg')
    assert dpagg.sampling_prob < 0.5
    assert dpagg.steps == (196 if name == 'digits' else 500)


@pytest.mark.parametrize(
    ('name', 'argument'), [p for p in ARGUMENTS if p not in (*PRINTED, *BATCHES)]
)
def test_otherwise_one_release_of_all_records_and_where_asked_a_labeller(
    name, argument
):
    plan = quickly_planned(name, argument)
    *labeller, dpagg = plan.mechanisms
    names = ['labeller'] * ((name, argument) in LABELLED)
    assert [m.name for m in labeller] == names
    assert (dpagg.sampling_prob, dpagg.steps, dpagg.l2_sensitivity) == (1, 1, 1)
    assert (plan.overflow_delta == 0) == (not labeller)


@pytest.mark.parametrize(('name', 'layers'), [
    ('digits', 'C2-C1-x'), ('mnist', 'C2-C1-x'), ('fashion_mnist', 'C2-C1-x'),
    ('celeba64', 'C2-C2-C1'), ('ffhq128', 'C3-C1-x'), ('svhn', 'C2-C1-x'),
    ('cifar10', 'C2-C1-x'), ('celeba32', 'C2-C1-x'), ('lsun_bedroom', 'C2-C2-C1'),
])  # fmt: skip
def test_printed_layers_are_the_papers(name, layers):
    config = tiny_runs.load_config(name, 'printed')
    assert config.networks.layers == layers
    layout = make_architecture(from_config_dict(config))
    assert layout.side(2) > 1 and layout.sides[0] == config.data.image_size
    assert (config.dpaf.asymmetry, config.dpaf.n_critic) == (8, 3)
    assert (config.dpaf.keep_fraction, config.networks.z_dim) == (0.9, 100)
    assert config.privacy.budgets == '0.1,rest,0.1'


@pytest.mark.parametrize(
    ('name', 'argument'),
    [*FAST, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW)],
)
def test_epsilon_of_the_config_is_met_closely(name, argument):
    config = tiny_runs.load_config(name, argument)
    plan = planned(config, name)
    assert 0.99 * config.privacy.epsilon < plan.epsilon <= config.privacy.epsilon
    assert argument.endswith('printed') or plan.epsilon < plan.epsilon_rdp


def test_celeba_means_gender_unless_told():
    named = tiny_runs.load_config('celeba64', 'gender').to_dict()
    assert tiny_runs.load_config('celeba64').to_dict() == named
    assert (named['data']['attribute'], named['data']['num_classes']) == ('gender', 2)
    hair = tiny_runs.load_config('celeba64', 'hair').data
    assert (hair.attribute, hair.num_classes) == ('hair', 3)
    both = tiny_runs.load_config('celeba64', 'hair,printed')
    assert (both.data.attribute, both.dpaf.batch_size) == ('hair', 64)


@pytest.mark.parametrize('name', NAMES)
def test_an_unknown_argument_is_refused_with_the_choices(name):
    with pytest.raises(ValueError, match="'nonsense'.* Choose .*'printed'"):
        tiny_runs.load_config(name, 'nonsense')


@pytest.mark.parametrize('name', NAMES)
def test_it_has_the_fields_of_the_default_and_no_other(name):
    def fields(group, path=''):
        for field, value in group.items():
            if isinstance(value, dict):
                yield from fields(value, f'{path}{field}.')
            else:
                yield f'{path}{field}'

    default = set(fields(tiny_runs.load_config('default').to_dict()))
    assert set(fields(tiny_runs.load_config(name).to_dict())) == default


# --- two steps of each, on data of its shape -------------------------------------


def tiny_of(name: str, argument: str, folder: pathlib.Path) -> ConfigDict:
    """The config itself with thin networks, on a few pictures in its own layout.

    A few steps for small batches, however many the pictures are.
    """
    config = tiny_runs.load_config(name, argument)
    side, number = config.data.image_size, config.data.num_classes
    if name == 'digits':
        # So few draws would leave less noise than is certified.
        small = argument in ('canonical', 'printed')
        fewer = {'dpaf__epochs': 0.002, 'privacy__epsilon': 5.0} if small else {}
        return tiny_runs.shrink(config, 'digits', **fewer)
    if name.startswith('celeba'):
        return tiny_runs.shrink(config, tiny_runs.write_celeba(folder / 'celeba'))
    if name == 'ffhq128':
        source, annotations = tiny_runs.write_ffhq(folder / 'ffhq')
        return tiny_runs.shrink(config, source, data__annotations=annotations)
    if name == 'mnist':
        path = folder / 'images.npz'
        source = tiny_runs.write_npz(path, side=side, num_classes=number)
    else:
        path = folder / 'images'
        source = tiny_runs.write_folder(path, side=side, num_classes=number)
    return tiny_runs.shrink(config, source)


def trained_samples(config: ConfigDict, workdir: pathlib.Path) -> np.ndarray:
    """Runs everything up to the samples; [40, H, W, C] uint8."""
    pipeline = Pipeline(config, workdir)
    for stage in ('prepare', 'plan', 'train', 'release', 'samples'):
        result = pipeline.run(stage)
    with np.load(result) as arrays:
        images, labels = arrays['images'], arrays['labels']
    counts = np.bincount(labels, minlength=config.data.num_classes)
    assert counts.max() - counts.min() <= 1
    assert images.dtype == np.uint8 and images.std() > 0
    return images


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'argument'), ARGUMENTS)
def test_two_steps_end_to_end(name, argument, tmp_path):
    config = tiny_of(name, argument, tmp_path)
    images = trained_samples(config, tmp_path / 'run')
    side, channels = config.data.image_size, config.data.channels
    assert images.shape == (40, side, side, channels)
    manifest = read_manifest(tmp_path / 'run' / 'private' / 'data')
    plan = Pipeline(config, tmp_path / 'run').run('plan')
    assert plan.num_examples == manifest.num_examples
    if 'printed' in argument:
        assert plan['dpagg'].steps == 2 * plan['conv2'].steps > 0
    else:
        labeller = ['labeller'] * ((name, argument) in LABELLED + BATCHES)
        assert [m.name for m in plan.mechanisms] == [*labeller, 'dpagg']
        assert (plan['dpagg'].steps == 1) == ('canonical' not in argument)


MODES = {
    'class-pure batches': {'dpaf__batches': 'class_pure', 'dpaf__epochs': 0.2},
    'as published': {'privacy__guarantee': 'as_published', 'dpaf__conv2__batch_size': 4},
    'no privacy': {'privacy__epsilon': float('inf')},
    'groups': {
        'dpaf__classifier__unit': 'group',
        'dpaf__classifier__num_groups': 2,
        'dpaf__conv2__gradient': 'group',
        'dpaf__conv2__num_groups': 2,
    },
    'privatised cotangent': {
        'dpaf__conv2__gradient': 'cotangent',
        'dpaf__classifier__private': 'conv1',
    },
    'all losses': {
        'dpaf__generator__loss_aggregate': 1.0,
        'dpaf__generator__loss_match': 1.0,
        'dpaf__classifier__private': 'none',
    },
    'a class in turn': {
        'dpaf__batches': 'class_pure',
        'dpaf__classes_per_step': 1,
        'dpaf__classifier__private': 'none',
    },
}  # fmt: skip
GUARANTEES = {
    'as published': 'none (as published: ',
    'no privacy': 'none (epsilon is infinite: no noise, no clipping)',
}


@pytest.mark.slow
@pytest.mark.parametrize('mode', MODES)
def test_two_steps_end_to_end_in_every_mode(mode, tmp_path):
    source = tiny_runs.write_folder(tmp_path / 'images')
    config = tiny_runs.canonical(source, **MODES[mode])
    trained_samples(config, tmp_path / 'run')
    report = Pipeline(config, tmp_path / 'run').run('report')
    privacy = report['privacy']
    assert privacy['guarantee'].startswith(GUARANTEES.get(mode, CERTIFIED))
    if mode in GUARANTEES:
        assert privacy['epsilon'] is None and privacy['epsilon_rdp'] is None
        assert privacy['dp_event'] == {'class': 'NonPrivateDpEvent'}
    if mode == 'as published':
        assert 0 < privacy['claimed_epsilon'] <= 10.0
        card = (tmp_path / 'run' / 'release' / 'README.md').read_text()
        assert 'certified epsilon: none' in card


@pytest.mark.parametrize('data', ['digits', 'cifar10', 'celeba64:hair', 'ffhq128'])
def test_a_data_set_without_a_variant_is_the_recommended_one(data):
    name, _, argument = data.partition(':')
    own = tiny_runs.load_config(name, argument).to_dict()
    assert own == tiny_runs.load_config('recommended', data).to_dict()


def decided(config: ConfigDict) -> ConfigDict:
    """With what the data would decide."""
    known = {'num_classes': 10, 'image_size': 32, 'channels': 3}
    config.data.update({k: v for k, v in known.items() if not config.data[k]})
    config.data.class_names = ''
    config.privacy.delta = config.privacy.delta or 1e-5
    return config


@pytest.mark.parametrize('argument', ['digits,3', 'celeba32:hair', 'folder:/a,1'])
def test_public_features_change_what_is_read_and_drawn_and_how_long_alone(argument):
    public = tiny_runs.load_config('public', argument)
    without = tiny_runs.load_config('recommended', argument)
    assert public.dpaf.taps != without.dpaf.taps
    for name in ('taps', 'axes', 'generator_steps'):
        public.dpaf[name] = without.dpaf[name]
    public.dpaf.classifier.features = without.dpaf.classifier.features
    for name in ('batch_size', 'denoise', 'latent_scale'):
        public.dpaf.generator[name] = without.dpaf.generator[name]
    assert public.to_dict() == without.to_dict()


@pytest.mark.parametrize(('argument', 'source', 'epsilon'), [
    ('mnist,1', 'tfds:mnist', 1.0),
    ('fashion_mnist', 'tfds:fashion_mnist', 10.0),
    ('digits', 'digits', 10.0),
    ('digits,1', 'digits', 1.0),
    ('folder:/a,b/c', 'folder:/a,b/c', 10.0),
    ('npz:/x.npz,2', 'npz:/x.npz', 2.0),
])  # fmt: skip
def test_what_is_recommended_depends_on_public_numbers_alone(argument, source, epsilon):
    config = decided(tiny_runs.load_config('recommended', argument))
    assert (config.data.source, config.privacy.epsilon) == (source, epsilon)
    with tiny_runs.without_accountant():
        typed = from_config_dict(config)
        plan = methods.get('dpaf').plan(typed, typed.data.num_examples or 50000)
    assert [m.name for m in plan.mechanisms] == ['labeller', 'dpagg']
    # Whether N was known when the config was made or not.
    steps, _ = steps_and_rate(typed, plan.num_examples)
    assert plan['labeller'].steps == 8 * math.ceil(steps / 8)
    assert plan['labeller'].sampling_prob == pytest.approx(1 / 15)
    # The default for a name stays what it is there, but for the labeller.
    assert typed.dpaf.batches == 'class_pure'


def test_an_epsilon_of_ones_own_data_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"epsilon.* is 'ten'"):
        tiny_runs.load_config('recommended', f'folder:{tmp_path},ten')
    (tmp_path / 'a,ten').mkdir()  # a path may have a comma
    source = f'folder:{tmp_path}/a,ten'
    assert tiny_runs.load_config('recommended', source).data.source == source


@pytest.mark.parametrize(('size', 'sides'), [
    (32, (32, 16, 8)), (64, (64, 32, 16, 8)), (128, (128, 64, 32, 16, 8)),
])  # fmt: skip
def test_what_is_recommended_fits_any_image_size(size, sides):
    config = decided(tiny_runs.load_config('recommended', 'folder:/a'))
    config.data.image_size = size
    assert make_architecture(from_config_dict(config)).sides == sides


@pytest.mark.parametrize('method', methods.METHODS)
@pytest.mark.parametrize('data', ['mnist', 'fashion_mnist'])
def test_dpimagebenchs_protocol_is_one_word_for_every_method(data, method):
    name = 'recommended' if method == 'dpaf' else method
    config = tiny_runs.load_config(name, f'{data},1,dpimagebench')
    assert (config.data.subset, config.data.num_examples) == (55_000, 55_000)
    assert config.privacy.delta == pytest.approx(1.66575e-6, rel=1e-5)
    assert config.evaluation.suite == 'dpimagebench'
    # Of which a twelfth selects an epoch.
    assert (config.samples.num, config.privacy.epsilon) == (60_000, 1.0)
    assert config.method == method and config.data.source == f'tfds:{data}'
    usual = tiny_runs.load_config(name, f'{data},1')
    for section in sections_of(method):
        assert config[section].to_dict() == usual[section].to_dict()


def test_the_protocols_plan_has_its_n_and_delta():
    config = tiny_runs.load_config('recommended', 'mnist,dpimagebench')
    with tiny_runs.without_accountant():
        plan = planned(config, 'mnist')
    assert (plan.guarantee, plan.num_examples) == (CERTIFIED, 55_000)
    assert plan.delta == 1 / (55_000 * math.log(55_000)) < 1 / 55_000
    assert config.privacy.epsilon == 10.0


@pytest.mark.slow
def test_the_protocols_epsilon_is_met_closely():
    config = tiny_runs.load_config('recommended', 'mnist,1,dpimagebench')
    assert 0.99 < planned(config, 'mnist').epsilon <= 1.0


@pytest.mark.parametrize('source', ['celeba64:hair', 'digits', 'npz:/x.npz'])
def test_the_protocol_is_refused_where_it_has_no_numbers(source):
    with pytest.raises(ValueError, match=f"mnist or fashion_mnist, not of '{source}'"):
        tiny_runs.load_config('recommended', f'{source},1,dpimagebench')


def test_a_folder_may_be_called_like_the_protocol(tmp_path):
    (tmp_path / 'a,dpimagebench').mkdir()
    source = f'folder:{tmp_path}/a,dpimagebench'
    config = tiny_runs.load_config('recommended', source)
    assert (config.data.source, config.data.subset) == (source, 0)


OWN = 'folder:/a,b,3'  # a path may have a comma


@pytest.mark.parametrize('method', methods.METHODS)
def test_every_method_takes_data_of_ones_own_with_its_own_settings(method):
    name = 'recommended' if method == 'dpaf' else method
    own = tiny_runs.load_config(name, OWN)
    assert (own.data.source, own.privacy.epsilon) == ('folder:/a,b', 3.0)
    assert own.method == method
    known = tiny_runs.load_config(name, 'mnist,3')
    by_size = {'cell'}  # which is not known of data of one's own
    for section in sections_of(method):
        ours, theirs = (each[section].to_dict() for each in (own, known))
        assert {n for n in ours if ours[n] != theirs[n]} <= by_size
    with tiny_runs.without_accountant():
        plan = methods.plan(from_config_dict(decided(own)), 50_000)
    assert plan.mechanisms


def test_a_table_is_named_behind_the_colon_and_refused_where_images_are_meant():
    named = tiny_runs.load_config('dp_merf', 'table:/path/to/rows.csv,3')
    assert named.data.source == 'table:/path/to/rows.csv'
    assert (named.privacy.epsilon, named.data.num_examples) == (3.0, 0)
    assert tiny_runs.load_config('g_pate', 'table:/rows.csv').privacy.epsilon == 1.0
    with pytest.raises(ValueError, match=r'of images. Take dp_merf\.py:table:PATH'):
        tiny_runs.load_config('recommended', 'table:/path/to/rows.csv')
