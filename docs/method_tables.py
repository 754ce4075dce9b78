"""Tables of all methods, and of the forms of Algorithm 1."""

from figures import (
    CELLS,
    FEWER_IMAGES,
    GREY,
    NONE,
    NOW,
    RESULTS,
    Row,
    measured,
    published,
    recommended,
    select,
    table,
    with_fidelity,
)

SMALL_DIGITS = 'samples.num=5000'
# With 8038 records the theorem cannot state the printed 0.1.
BUDGETS_OF_FEW = 'privacy.budgets=10%,rest,10%'
CELLS_HEAD = '|'.join(f'{GREY[data]} ε = {epsilon}' for data, epsilon in CELLS)

# By method: how it is called, its config and what was added to that.
METHODS = {
    'dpaf': ('DPAF, one-shot aggregates alone', '{}.py', ''),
    'dpba_wgan': ('DPBA-WGAN', 'dpba_wgan.py:{}', FEWER_IMAGES),
    'dp_merf': ('DP-MERF', 'dp_merf.py:{}', FEWER_IMAGES),
    'dp_kernel': ('DP-Kernel', 'dp_kernel.py:{}', FEWER_IMAGES),
    'dp_hp': ('DP-HP', 'dp_hp.py:{}', FEWER_IMAGES),
    'pearl': ('PEARL', 'pearl.py:{}', FEWER_IMAGES),
    'ndpdc': ('NDPDC', 'ndpdc.py:{}', ''),
    'dp_sinkhorn': ('DP-Sinkhorn', 'dp_sinkhorn.py:{}', 'samples.num=10000'),
    'p3gm': ('P3GM', 'p3gm.py:{}', FEWER_IMAGES),
    'dp_gan': ('DP-GAN', 'dp_gan.py:{}', FEWER_IMAGES),
    'dp_cgan': ('DP-CGAN', 'dp_cgan.py:{}', 'samples.num=10000'),
    'dpgen': ('DPGEN', 'dpgen.py:{}', 'samples.num=6000'),
    'dpdm': ('DPDM', 'dpdm.py:{}', ''),
    'feta': ('FETA', 'feta.py:{}', 'samples.num=5000'),
    'g_pate': ('G-PATE', 'g_pate.py:{}', FEWER_IMAGES),
    'datalens': ('DataLens', 'datalens.py:{}', FEWER_IMAGES),
    'pate_gan': ('PATE-GAN', 'pate_gan.py:{}', FEWER_IMAGES),
    'gs_wgan': ('GS-WGAN', 'gs_wgan.py:{}', 'samples.num=5000'),
}


def methods() -> str:
    """Every method by its config."""
    best = ['DPAF, one-shot aggregates and a labeller', '`recommended.py:mnist`']
    rows = [[*best, *(recommended(data, epsilon) for data, epsilon in CELLS)]]
    pure = *ALGORITHM_1['certified'], FEWER_IMAGES
    mixed = 'DPAF, small mixed batches', '{}.py:printed', 'dpaf.epochs=10'
    for label, config, overrides in (*METHODS.values(), pure, mixed):
        found = [
            measured(config=config.format(data), epsilon=epsilon, overrides=overrides)
            for data, epsilon in CELLS
        ]
        if set(found) != {NONE}:
            rows.append([label, f'`{config.format("mnist")}`', *found])
    return table(f'method|config, for MNIST|{CELLS_HEAD}', *rows)


# By guarantee: how it is called, and its config.
ALGORITHM_1 = {
    'certified': ('DPAF, small class-pure batches', '{}.py:canonical'),
    'as_published': ('DPAF', '{}.py:printed'),
}
PRINTED = {'dp_gan': 'DP-GAN, tuned', 'feta': 'DP-FETA'}  # names in published.csv


def small_budget(guarantee: str) -> str:
    """Every method with little computing: accuracy; Fréchet distance, precision, recall."""
    own = {f'recommended.py:{data},{epsilon}' for data, epsilon in CELLS}
    best = [r for r in RESULTS if r['config'] in own]
    others = [r for r in RESULTS if not r['config'].startswith('recommended.py:')]
    wanted = {'classifier': 'cnn', 'guarantee': guarantee}

    def full(data: str, epsilon: int) -> str:
        return with_fidelity(
            select(best, data=data, epsilon=epsilon, state=NOW, **wanted)
        )

    lines = [
        [
            'DPAF, one-shot aggregates and a labeller, at full settings',
            *(full(*cell) for cell in CELLS),
            NONE,
        ]
    ]
    # Algorithm 1 at full settings is a matter of minutes or an hour as well.
    label, config = ALGORITHM_1[guarantee]
    forms = (
        _form(config.format(data), epsilon=epsilon, guarantee=guarantee)
        for data, epsilon in CELLS
    )
    lines.append([f'{label}, at full settings', *forms, _printed('DPAF')])
    rest = {method: told for method, told in METHODS.items() if method != 'dpaf'}
    for method, (label, config, overrides) in rest.items():
        name = label.split(',')[0]
        known = select(others, method=method, **wanted)
        uncut = {'overrides': overrides, 'state': ''}
        cells = (
            _small(
                select(known, data=data, epsilon=epsilon),
                uncut | {'config': config.format(data)},
            )
            for data, epsilon in CELLS
        )
        lines.append([name, *cells, _printed(PRINTED.get(method, name))])
    shown = (each for each in lines if set(each[1:-1]) != {NONE})
    return table(f'method|{CELLS_HEAD}|printed: MNIST; Fashion-MNIST', *shown)


def _small(rows: list[Row], uncut: dict[str, str]) -> str:
    """A cell: of the table's scale, else of what came before it, else of the config."""
    if now := select(rows, state='scale cpu'):
        return with_fidelity(now)
    before = select(rows, state='small budget') or select(rows, **uncut)
    return f'{float(before[0]["accuracy"]):.3f}' if before else NONE


def _printed(name: str) -> str:
    """Accuracies in print at ε = 1 / 10."""
    pairs = [published(name, data) for data in GREY]
    return NONE if set(pairs) == {NONE} else '; '.join(pairs)


def forms() -> str:
    """Algorithm 1 by how it is run: accuracy; Fréchet distance, precision, recall."""
    runs: dict[str, dict[str, object]] = {
        'ε = ∞': {'guarantee': 'none', 'epsilon': 'inf'},
        'as published, claimed ε = 10': {'guarantee': 'as_published', 'epsilon': 10},
        '… claimed ε = 1': {'guarantee': 'as_published', 'epsilon': 1},
        'certified ε = 10': {'guarantee': 'certified', 'epsilon': 10},
        'certified ε = 1': {'guarantee': 'certified', 'epsilon': 1},
    }
    configs = {
        'MNIST': ('mnist.py:printed', 'mnist.py:canonical'),
        'Fashion-MNIST': ('fashion_mnist.py:printed', 'fashion_mnist.py:canonical'),
        'CelebA-10k by gender, 32 × 32': (
            'celeba32.py:gender,printed',
            'celeba32.py:gender,canonical',
        ),
        'by hair colour': ('celeba32.py:hair,printed', 'celeba32.py:hair,canonical'),
        'by gender, 64 × 64': ('celeba64.py:gender,canonical',),
        'UTKFace-10k by gender, 128 × 128': ('ffhq128.py:canonical',),
    }
    rows = [
        [data, f'`{config}`', *(_form(config, **wanted) for wanted in runs.values())]
        for data, each in configs.items()
        for config in each
    ]
    shown = (row for row in rows if set(row[2:]) != {NONE})
    return table(f'|config|{"|".join(runs)}', *shown)


def _form(config: str, **wanted: object) -> str:
    overrides = FEWER_IMAGES
    if config.startswith('celeba32') and config.endswith('printed'):
        overrides = f'{BUDGETS_OF_FEW} {FEWER_IMAGES}'
    if config.startswith('ffhq128'):
        overrides = 'data.attribute= samples.num=10000'
    wanted = {'config': config, 'state': '', 'classifier': 'cnn'} | wanted
    return with_fidelity(select(RESULTS, overrides=overrides, **wanted))


def steps_to_canonical() -> str:
    """What made small batches learn, on MNIST: accuracy of the small CNN."""
    first, second = 'taps fourier and conv2, styled', 'without a labeller'
    small, slope = 'dpaf.batch_size=24', 'dpaf.head.penalty=0.01'
    of_24 = f'{FEWER_IMAGES} {small}'
    lines: dict[str, dict[str, str]] = {
        'as printed': {'config': 'mnist.py:printed'},
        'a class an aggregate and an answer of the head; penalty; taps `fourier` and '
        '`conv2`; styled': {'state': first},
        '… batches of 24': {'state': first, 'overrides': of_24},
        '… a tenth of the penalty': {
            'state': first,
            'overrides': f'{FEWER_IMAGES} {slope}',
        },
        '… taps `wavelet`, `shape`, `texture`, too; fine': {'state': second},
        '… … batches of 24': {
            'state': f'{second}, batches of 24',
            'overrides': f'{small} {FEWER_IMAGES}',
        },
        '… … a labeller: `:canonical`': {},
    }
    common = {'config': 'mnist.py:canonical', 'overrides': FEWER_IMAGES}
    rows = [
        [label, *(measured(**common | wanted, epsilon=e) for e in ('inf', 10))]
        for label, wanted in lines.items()
    ]
    return table('MNIST, one change after another|ε = ∞|ε = 10', *rows)


def digits() -> str:
    """The embedded digits by method."""
    configs = {
        'DPAF, one-shot aggregates alone': ('digits.py:one_shot', ('', '')),
        'DP-MERF': ('dp_merf.py:digits', ('', '')),
        'DP-HP': (
            'dp_hp.py:digits',
            (f'{SMALL_DIGITS} dp_hp.generator_steps=300',) * 2,
        ),
        'PEARL': (
            'pearl.py:digits',
            (f'{SMALL_DIGITS} pearl.generator_steps=300',) * 2,
        ),
        'NDPDC': ('ndpdc.py:digits', ('', '')),
        'DP-Sinkhorn': ('dp_sinkhorn.py:digits', ('samples.num=2000',) * 2),
        'P3GM': ('p3gm.py:digits', ('', 'samples.num=3000')),
        'DP-GAN': (
            'dp_gan.py:digits',
            ('evaluation.epochs=5', 'evaluation.epochs=3'),
        ),
        'DP-CGAN': ('dp_cgan.py:digits', ('', 'evaluation.epochs=3')),
        'DPBA-WGAN': ('dpba_wgan.py:digits', ('evaluation.epochs=3', '')),
        'DPGEN': ('dpgen.py', ('', 'samples.num=5000')),
        'DPDM': ('dpdm.py', ('', '')),
        'FETA': ('feta.py', ('', '')),
        'G-PATE': ('g_pate.py', ('', 'samples.num=3000')),
        'PATE-GAN': ('pate_gan.py', ('', 'samples.num=3000')),
    }
    rows = [
        [
            label,
            f'`{config}`',
            *(
                measured(config=config, epsilon=e, overrides=added, data='digits')
                for e, added in zip((1, 10), overrides, strict=True)
            ),
        ]
        for label, (config, overrides) in configs.items()
    ]
    best = 'DPAF, one-shot aggregates and a labeller', '`recommended.py:digits`'
    first = [*best, *(recommended('digits', epsilon) for epsilon in (1, 10))]
    return table('method|config|ε = 1|ε = 10', first, *rows)
