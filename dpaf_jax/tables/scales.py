"""How much computing a table gets: from a few steps for every row to the papers' own settings.

A run's fields are its config's, then the scale's, then the row's, so that a row changes what
it is about at every scale. At `smoke` embedded data stand in for every data set: it shows
that all rows run, and its figures mean nothing.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

AS_PUBLISHED, CERTIFIED = 'as_published', 'certified'
GUARANTEES = (AS_PUBLISHED, CERTIFIED)
Settings = Mapping[str, Any]

# The methods' configs by guarantee: a file and a variant of the data set's own config, or a
# file that takes the data set's name. A method that is one algorithm stands once.
FORMS: dict[str, dict[str, tuple[str, str]]] = {
    'dpaf': {AS_PUBLISHED: ('', 'printed'), CERTIFIED: ('', 'canonical')},
    'dpaf_printed': {AS_PUBLISHED: ('', 'printed'), CERTIFIED: ('', 'printed')},
    # Of budgets that the paper's theorem cannot state.
    'dpaf_printed_certified': {CERTIFIED: ('', 'printed')},
    'recommended': {CERTIFIED: ('recommended', '')},
    'dpgen': {AS_PUBLISHED: ('dpgen', ''), CERTIFIED: ('dpgen', '')},
    'dpdm': {CERTIFIED: ('dpdm', '')},
    'feta': {CERTIFIED: ('feta', '')},
    'g_pate': {CERTIFIED: ('g_pate', '')},
    'datalens': {CERTIFIED: ('datalens', '')},
    'pate_gan': {CERTIFIED: ('pate_gan', '')},
    'dpba_wgan': {AS_PUBLISHED: ('dpba_wgan', ''), CERTIFIED: ('dpba_wgan', '')},
    'dp_gan': {CERTIFIED: ('dp_gan', '')},
    'dp_cgan': {CERTIFIED: ('dp_cgan', '')},
    'gs_wgan': {AS_PUBLISHED: ('gs_wgan', ''), CERTIFIED: ('gs_wgan', '')},
    'dp_merf': {AS_PUBLISHED: ('dp_merf', ''), CERTIFIED: ('dp_merf', '')},
    'dp_kernel': {AS_PUBLISHED: ('dp_kernel', ''), CERTIFIED: ('dp_kernel', '')},
    'dp_hp': {CERTIFIED: ('dp_hp', '')},
    'pearl': {CERTIFIED: ('pearl', '')},
    'ndpdc': {CERTIFIED: ('ndpdc', '')},
    'dp_sinkhorn': {CERTIFIED: ('dp_sinkhorn', '')},
    'p3gm': {CERTIFIED: ('p3gm', '')},
    # Real images are judged beside a generator that is not trained.
    'real': {CERTIFIED: ('dp_merf', '')},
}
ALWAYS: dict[str, Settings] = {
    'real': {'dp_merf.generator_steps': 1, 'evaluation.train_on_real': True},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """One of SCALES.

    Attributes:
        about: what it takes.
        common: fields of every run.
        methods: fields by the names of FORMS.
        generators: runs of each cell.
        recommended_generators: of what is recommended.
        accuracy: the classifier behind a paper's `accuracy`.
        attack: `--iterations` and `--attempts` of an attack.
        is_smoke: embedded data stand in, at one finite epsilon.
    """

    about: str
    common: Settings
    methods: Mapping[str, Settings]
    generators: int = 1
    recommended_generators: int = 1
    accuracy: str = 'cnn'
    attack: tuple[int, int] = (500, 300)
    is_smoke: bool = False

    def settings(self, method: str) -> Settings:
        """Fields that the scale gives a method, an entry of FORMS."""
        return {**self.common, **self.methods.get(method, {}), **ALWAYS.get(method, {})}

    def repeats(self, method: str) -> int:
        """Generators of a cell."""
        own = self.recommended_generators if method == 'recommended' else 0
        return own or self.generators


THIN = {
    'networks.width': 2,
    'networks.generator_width': 2,
    'networks.fc_width': 8,
    'networks.z_dim': 8,
    'networks.layers': 'C1-C1-x',
}
SMALL_BATCHES = {
    'dpaf.classifier.epochs': 0.2,
    'dpaf.epochs': 0.5,
    'dpaf.batch_size': 24,
    'dpaf.conv2.batch_size': 64,
    'dpaf.generator.batch_size': 8,
}
FEW_GAN_STEPS = {
    'batch_size': 32,
    'discriminator_steps': 1,
    'generator_steps': 2,
    'width': 2,
    'fc_width': 8,
    'generator_batch_size': 8,
}

THIN_GAN = {
    'batch_size': 512,
    'discriminator_steps': 5,
    'generator_steps': 150,
    'width': 8,
    'fc_width': 32,
}


def _of(section: str, settings: Settings) -> Settings:
    return {f'{section}.{name}': value for name, value in settings.items()}


FEW_SCORE_STEPS = _of(
    'dpgen',
    {
        'width': 4,
        'batch_size': 32,
        'microbatch': 32,
        'multiplicity': 1,
        'labeller_steps': 2,
        'steps': 2,
        'num_levels': 3,
        'langevin_steps': 1,
    },
)
FEW_AGGREGATES = _of(
    'ndpdc',
    {'aggregates': 2, 'batch_size': 60, 'width': 4, 'images_per_class': 2, 'steps': 2},
)
# Its images are dealt again and again, so that classifiers take as many steps as elsewhere.
DEALT_OFTEN = {'evaluation.epochs': 5}
# What draws digits in minutes of an H200 (docs/explanation/feta.md).
FINE_SCORE_NETWORK = {
    'patch': 1,
    'width': 32,
    'max_width': 128,
    'scales': 3,
    'batch_size': 4096,
    'microbatch': 512,
    'multiplicity': 4,
    'steps': 400,
    'learning_rate': 5e-4,
    'ema_decay': 0.99,
}
LOW_LEVELS = {'sigma_max': 20.0, 'sigma_min': 0.03, 'num_levels': 20}
FEW_TEACHERS = _of(
    'g_pate',
    # A multiple of 2, 4 and 8 devices, whose shares are of one size.
    {'teachers': 24, 'batch_size': 8, 'steps': 2, 'fakes': 8, 'width': 8},
)
SMOKE = Scale(
    about='two cores, minutes a table: every row runs, no figure means anything',
    common={
        **THIN,
        'samples.num': 240,
        'evaluation.seeds': 1,
        'evaluation.epochs': 1,
        'evaluation.fidelity_images': 100,
        'privacy.delta': 1e-5,
    },
    methods={
        'dpaf': {**SMALL_BATCHES},
        'dpaf_printed': SMALL_BATCHES,
        'dpaf_printed_certified': SMALL_BATCHES,
        'recommended': {'dpaf.generator_steps': 2, 'dpaf.generator.batch_size': 16},
        'dpgen': FEW_SCORE_STEPS,
        'dpdm': FEW_SCORE_STEPS,
        'feta': {
            **FEW_SCORE_STEPS,
            'dpgen.warm_start_steps': 2,
            'dpaf.generator_steps': 2,
            'dpaf.generator.batch_size': 16,
        },
        'g_pate': FEW_TEACHERS,
        'datalens': FEW_TEACHERS,
        'pate_gan': FEW_TEACHERS,
        'dpba_wgan': _of('dpba_wgan', FEW_GAN_STEPS),
        'dp_gan': _of('dp_gan', FEW_GAN_STEPS),
        'dp_cgan': _of('dp_cgan', FEW_GAN_STEPS),
        'gs_wgan': _of('gs_wgan', {**FEW_GAN_STEPS, 'batch_size': 300}),
        'dp_merf': {'dp_merf.generator_steps': 2, 'dp_merf.features': 64},
        'dp_kernel': {'dp_kernel.generator_steps': 2, 'dp_kernel.batch_size': 60},
        'dp_hp': {'dp_hp.generator_steps': 2},
        'pearl': {'pearl.generator_steps': 2},
        'ndpdc': FEW_AGGREGATES,
        'dp_sinkhorn': {'dp_sinkhorn.generator_steps': 2},
        'p3gm': {'p3gm.steps': 2, 'p3gm.batch_size': 32, 'p3gm.width': 8},
        'real': {'dp_merf.features': 64},
    },
    attack=(4, 5),
    is_smoke=True,
)
CPU = Scale(
    about='minutes of one core a run',
    common={'samples.num': 10_000, 'evaluation.seeds': 1, 'evaluation.epochs': 5},
    methods={
        'dpaf': {},
        'dpaf_printed': {'dpaf.epochs': 0.5, 'dpaf.classifier.epochs': 0.5},
        'dpaf_printed_certified': {'dpaf.epochs': 0.5, 'dpaf.classifier.epochs': 0.5},
        'dpgen': {'samples.num': 4000},
        'dpdm': {'samples.num': 4000},
        'feta': {'samples.num': 4000, 'dpaf.generator_steps': 300},
        'g_pate': {'g_pate.steps': 250},
        'datalens': {'g_pate.steps': 250},
        'pate_gan': {'g_pate.steps': 400},
        'dpba_wgan': {'dpba_wgan.generator_steps': 300},
        'dp_gan': _of('dp_gan', THIN_GAN),
        'dp_cgan': _of('dp_cgan', THIN_GAN),
        'gs_wgan': {'gs_wgan.generator_steps': 100},
        'dp_merf': {'dp_merf.generator_steps': 1000},
        'dp_kernel': {'dp_kernel.batch_size': 60},
    },
    recommended_generators=3,
)
GPU = Scale(
    about="a GPU, the methods' configs as they are",
    common={'samples.num': 60_000, 'evaluation.seeds': 1},
    methods={
        'dpdm': _of('dpgen', FINE_SCORE_NETWORK),
        'feta': {
            'feta.learning_rate': 2e-3,
            'dpaf.generator_steps': 1500,
            'dpgen.warm_start_steps': 4000,
            **_of('dpgen', FINE_SCORE_NETWORK | LOW_LEVELS),
        },
        'ndpdc': DEALT_OFTEN,
    },
    generators=3,
)
PAPER = Scale(
    about='GPUs, what the papers print: five generators, their CNN, for its own epochs',
    common={
        'samples.num': 60_000,
        'evaluation.seeds': 1,
        'evaluation.suite': 'slow',
        'evaluation.train_on_real': True,
    },
    methods={
        'dpgen': {
            'dpgen.batch_size': 192,
            'dpgen.steps': 15_000,
            'dpgen.sampler': 'langevin',
        },
        'g_pate': _of('g_pate', {'teachers': 4000, 'bins': 10, 'cell': 1}),
        'dpba_wgan': _of(
            'dpba_wgan',
            {'alternate': True, 'per_label': True, 'discriminator_steps': 1},
        ),
        'ndpdc': DEALT_OFTEN,
    },
    generators=5,
    accuracy='datalens_cnn',
)
SCALES = {'smoke': SMOKE, 'cpu': CPU, 'gpu': GPU, 'paper': PAPER}
