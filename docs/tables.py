"""The tables of the pages, made from results.csv, published.csv and gpu.json.

    python docs/tables.py           writes each table where a page names it
    python docs/tables.py --check   exit status 1 if a page is not what the files give

A page names a table by a line `<!-- table: NAME -->`; the table ends at `<!-- end -->`. A
figure is a mean and a standard deviation over generators, with their number in brackets.
"""

import json
import re
import sys
from collections.abc import Callable

from figures import (
    DOCS,
    NONE,
    PUBLISHED,
    RESULTS,
    Row,
    measured,
    published,
    real,
    recommended,
    select,
    table,
    with_fidelity,
)

PAGES = (
    DOCS / 'explanation' / 'algorithm.md',
    DOCS / 'results.md',
    DOCS / 'howto' / 'benchmark.md',
    DOCS.parent / 'README.md',
)
BLOCK = re.compile(r'(<!-- table: (\S+) -->\n).*?(<!-- end -->)', re.DOTALL)

# What is added to a config, as results.csv writes it.
GENDER = 'data.attribute=gender data.num_classes=2 data.channels=3'
HAIR = 'data.attribute=hair data.num_classes=3 data.channels=3'
CIFAR = 'data.num_classes=10 data.channels=3 data.num_examples=50000 data.image_size=32'
SIDE_64 = ' data.image_size=64 dpaf.generator_steps=600 samples.num=20000'
SIDE_128 = ' data.image_size=128 dpaf.generator_steps=400 samples.num=10000'
FEW = 'data.num_examples='
SHORT = ' dpaf.generator_steps=600'
FEWER_IMAGES = 'samples.num=20000'
SMALL_DIGITS = 'samples.num=5000'
WIDE = 'evaluation.wide_resnet=16-2'
LONGER = ' evaluation.epochs=3'

GREY = {'mnist': 'MNIST', 'fashion_mnist': 'Fashion-MNIST'}
CELLS = [(data, epsilon) for data in GREY for epsilon in (1, 10)]
CELLS_HEAD = '|'.join(f'{GREY[data]} ε = {epsilon}' for data, epsilon in CELLS)


def main_table() -> str:
    """What is recommended, on every data set."""

    def grey(data: str, judge: str, paper: str, **wanted: object) -> list[str]:
        pair = [recommended(data, epsilon, **wanted) for epsilon in (1, 10)]
        return [GREY[data], judge, *pair, f'{paper} {published(paper, data)}', NONE]

    def faces(label: str, data: str, overrides: str) -> list[str]:
        found = recommended('celeba:PATH', 10, data=data, overrides=overrides)
        return [label, 'small CNN', NONE, found, NONE, real(data, overrides)]

    cifar = [recommended('npz:PATH', e, overrides=CIFAR) for e in (1, 10)]
    digits = [recommended('digits', e) for e in (1, 10)]
    wide = {'classifier': 'wrn-16-2'}
    return table(
        'data|classifier|ε = 1|ε = 10'
        '|best in print, no fault of its proof known, 1 / 10|real images',
        grey('mnist', 'small CNN', 'DPDM'),
        grey('mnist', 'WRN-16-2', 'FETA-Pro', overrides=WIDE + LONGER, **wide),
        grey('fashion_mnist', 'small CNN', 'DPDM'),
        grey('fashion_mnist', 'WRN-16-2', 'FETA-Pro', overrides=WIDE, **wide),
        [
            *('CIFAR-10', 'small CNN', *cifar),
            *(f'FETA-Pro {published("FETA-Pro", "cifar10")}', real('cifar10', CIFAR)),
        ],
        faces('CelebA-10k, gender, 32 × 32', 'celeba10k_gender', GENDER),
        faces('CelebA-10k, hair colour, 32 × 32', 'celeba10k_hair', HAIR),
        ['digits of 8 × 8, at 16 × 16', 'small CNN', *digits, NONE, NONE],
    )


def judges() -> str:
    """The recommended config by one classifier beside the next."""

    def line(name: str, source: str, epsilon: int, overrides: str = '') -> list[str]:
        return [
            f'{name}, ε = {epsilon}',
            recommended(source, epsilon, overrides=overrides),
            recommended(source, epsilon, overrides=overrides, classifier='logreg'),
        ]

    return table(
        'data|small CNN|logistic regression',
        *(line(GREY[data], data, epsilon) for data, epsilon in CELLS),
        *(line('CIFAR-10', 'npz:PATH', epsilon, CIFAR) for epsilon in (1, 10)),
        line('CelebA-10k, gender', 'celeba:PATH', 10, GENDER),
        line('CelebA-10k, hair colour', 'celeba:PATH', 10, HAIR),
        *(line('digits', 'digits', epsilon) for epsilon in (1, 10)),
    )


# By method: how it is called, its config and what was added to that.
METHODS = {
    'dpaf': ('DPAF, one-shot table', '{}.py', ''),
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
    best = ['DPAF, table and labeller', '`recommended.py:mnist`']
    rows = [[*best, *(recommended(data, epsilon) for data, epsilon in CELLS)]]
    pure = 'DPAF, small class-pure batches', '{}.py:canonical', FEWER_IMAGES
    mixed = 'DPAF, small mixed batches', '{}.py:printed', 'dpaf.epochs=10'
    for label, config, overrides in (*METHODS.values(), pure, mixed):
        found = [
            measured(config=config.format(data), epsilon=epsilon, overrides=overrides)
            for data, epsilon in CELLS
        ]
        if set(found) != {NONE}:
            rows.append([label, f'`{config.format("mnist")}`', *found])
    return table(f'method|config, for MNIST|{CELLS_HEAD}', *rows)


def small_budget(guarantee: str) -> str:
    """Every method with little computing: accuracy; Fréchet distance, precision, recall."""
    rows = []
    best = [r for r in RESULTS if r['config'].startswith('recommended.py:')]
    others = [r for r in RESULTS if r not in best]
    lines = [('DPAF, table and labeller', 'dpaf', best)]
    lines += [(label.split(',')[0], m, others) for m, (label, *_) in METHODS.items()]
    for label, method, known in lines:
        wanted = {'classifier': 'cnn', 'method': method, 'guarantee': guarantee}
        found = [
            _small(select(known, data=data, epsilon=epsilon, **wanted))
            for data, epsilon in CELLS
        ]
        if set(found) != {NONE}:
            rows.append([label, *found])
    return table(f'method|{CELLS_HEAD}', *rows)


def _small(rows: list[Row]) -> str:
    """A cell: of the scale `cpu` as it is, else of what came before that."""
    if now := select(rows, state='scale cpu'):
        return with_fidelity(now)
    before = select(rows, state='small budget')[:1]
    return f'{float(before[0]["accuracy"]):.3f}' if before else NONE


def forms() -> str:
    """Algorithm 1 by how it is run: accuracy; Fréchet distance, precision, recall."""
    runs: dict[str, dict[str, object]] = {
        'ε = ∞': {'guarantee': 'none', 'epsilon': 'inf'},
        'as published, claimed ε = 10': {'guarantee': 'as_published', 'epsilon': 10},
        'certified ε = 10': {'guarantee': 'certified', 'epsilon': 10},
        'certified ε = 1': {'guarantee': 'certified', 'epsilon': 1},
    }
    configs = {
        'MNIST': ('mnist.py:printed', 'mnist.py:canonical'),
        'Fashion-MNIST': ('fashion_mnist.py:canonical',),
        'CelebA-10k by gender, 32 × 32': ('celeba32.py:gender,canonical',),
    }
    rows = [
        [data, f'`{config}`', *(_form(config, **wanted) for wanted in runs.values())]
        for data, each in configs.items()
        for config in each
    ]
    return table(f'|config|{"|".join(runs)}', *rows)


def _form(config: str, **wanted: object) -> str:
    wanted = {'config': config, 'state': '', 'classifier': 'cnn'} | wanted
    return with_fidelity(select(RESULTS, overrides=FEWER_IMAGES, **wanted))


def faces() -> str:
    """CelebA-10k by task and size."""

    def line(label: str, data: str, size: str = '') -> list[str]:
        own = GENDER if data.endswith('gender') else HAIR
        found = [
            recommended(
                'celeba:PATH', 10, data=data, overrides=own + size, classifier=c
            )
            for c in ('cnn', 'logreg')
        ]
        floor = measured(method='majority', data=data, classifier='majority')
        return [label, *found, floor, NONE if size else real(data, own)]

    return table(
        'task|small CNN|logistic regression|largest class|small CNN on real images',
        line('gender, 32 × 32', 'celeba10k_gender'),
        line('gender, 64 × 64', 'celeba10k_gender', SIDE_64),
        line('gender, 128 × 128', 'celeba10k_gender', SIDE_128),
        line('hair colour, 32 × 32', 'celeba10k_hair'),
    )


def cifar() -> str:
    """CIFAR-10 beside what is published."""
    names = {
        'cnn': 'small CNN',
        'logreg': 'logistic regression',
        'labeller': 'the labeller itself',
    }
    ours = [
        [
            f'ours, {name}',
            *(
                recommended('npz:PATH', e, overrides=CIFAR, classifier=classifier)
                for e in (1, 10)
            ),
            'images' if classifier != 'labeller' else 'classifier',
        ]
        for classifier, name in names.items()
    ]
    ceiling = ['real images, small CNN', NONE, real('cifar10', CIFAR), 'not private']
    papers = {
        row['method']: [
            row['method'],
            *published(row['method'], 'cifar10').split(' / '),
            row['kind'],
        ]
        for row in select(PUBLISHED, data='cifar10')
    }
    papers = {name: line for name, line in papers.items() if line[1] != NONE}
    return table('|ε = 1|ε = 10|what is released', *ours, ceiling, *papers.values())


def digits() -> str:
    """The embedded digits by method."""
    configs = {
        'DPAF, table and labeller': ('recommended.py:digits,{}', ('', '')),
        'DPAF, one-shot table': ('digits.py:one_shot', ('', '')),
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
    }
    rows = [
        [
            label,
            f'`{config.removesuffix(",{}")}`',
            *(
                measured(
                    config=config.format(e), epsilon=e, overrides=added, data='digits'
                )
                for e, added in zip((1, 10), overrides, strict=True)
            ),
        ]
        for label, (config, overrides) in configs.items()
    ]
    return table('method|config|ε = 1|ε = 10', *rows)


def few() -> str:
    """Fewer records than there are."""
    cases = (
        ('mnist', 5000, 1, ''),
        ('mnist', 1500, 10, ''),
        ('mnist', 1500, 1, f'{SHORT} {FEWER_IMAGES}'),
        ('fashion_mnist', 5000, 1, f' {FEWER_IMAGES}'),
    )
    rows = [
        [
            f'{GREY[data]}, {number} records, ε = {epsilon}',
            *(
                recommended(
                    data, epsilon, overrides=f'{FEW}{number}{added}', classifier=judge
                )
                for judge in ('cnn', 'logreg')
            ),
        ]
        for data, number, epsilon, added in cases
    ]
    return table('|small CNN|logistic regression', *rows)


def papers() -> str:
    """Published figures beside ours."""

    def ours(label: str, **wanted: object) -> list[str]:
        pairs = []
        for data in GREY:
            added = {'overrides': WIDE + LONGER * (data == 'mnist')} if wanted else {}
            found = [recommended(data, e, **wanted | added).split()[0] for e in (1, 10)]
            pairs.append(' / '.join(each.removeprefix('0') for each in found))
        return [label, *pairs, 'proven here', 'measured here']

    rows = {}
    for row in PUBLISHED:
        if row['data'] in GREY and row['accuracy']:
            pairs = [published(row['method'], data) for data in GREY]
            rows[row['method']] = [
                row['method'],
                *pairs,
                row['guarantee'],
                row['source'],
            ]
    return table(
        f'ε = 1 / 10|{"|".join(GREY.values())}|ε is|source',
        ours('`recommended.py`, small CNN'),
        ours('`recommended.py`, WRN-16-2', classifier='wrn-16-2'),
        *rows.values(),
    )


def auroc() -> str:
    """G-PATE on tables."""
    judges = {
        'logreg': 'logistic regression',
        'adaboost': 'AdaBoost',
        'bagging': 'bagging',
        'mlp': 'MLP',
    }
    rows = [
        [
            label,
            *(
                measured(data=data, epsilon=epsilon, method=method, classifier=judge)
                for judge in judges
            ),
        ]
        for label, data, epsilon, method in (
            ('`made`, ε = 10', 'made', 10, 'g_pate'),
            ('the same, PATE-GAN', 'made', 10, 'pate_gan'),
            ('real rows', 'made', '', 'real'),
            ('`breast_cancer`, ε = 1', 'breast_cancer', 1, 'g_pate'),
            ('real rows', 'breast_cancer', '', 'real'),
        )
    ]
    return table(f'AUROC|{"|".join(judges.values())}', *rows)


GPU = DOCS / 'gpu.json'  # of `python -m benchmarks.gpu`, where a card has been measured
GPU_FIGURES = {
    'speedup_over_naive': '{:.2f} × naive `vmap`',
    'speedup_over_jax_privacy': '{:.2f} × JAX-Privacy',
    'speedup_over_opacus': '{:.2f} × Opacus',
    'over_plain': '{:.2f} of an ordinary gradient',
    'dp_over_nonprivate': '{:.2f} of the step without protection',
    'images_per_second': '{:.0f} images/s',
    'seconds': '{:.0f} s',
    'compiling': '{:.0f} s of compilation',
}


def gpu() -> str:
    """What benchmarks/gpu.py has found, or that no card has been measured."""
    if not GPU.exists():
        return 'No card has been measured yet.\n'
    found = json.loads(GPU.read_text(encoding='utf-8'))
    rows, late = [], 0
    for name, part in found['parts'].items():
        if part.get('error') == 'no time left':
            late += 1
            continue
        told = [
            text.format(part[field])
            for field, text in GPU_FIGURES.items()
            if part.get(field) is not None
        ]
        machine = part.get('machine', {})
        memory = machine.get('device_peak_mib')
        use = part.get('utilisation_percent')
        rows.append(
            [
                name,
                part.get('error') or ', '.join(told),
                NONE if memory is None else f'{memory} MiB',
                NONE if use is None else f'{use:.0f} %',
            ]
        )
    card = ', '.join(found['card'].values()) or 'no card: a smoke run'
    head = f'{card}; {found["date"]}|measured|most memory|utilisation'
    rest = f'\nNo time was left for {late} other parts.\n' if late else ''
    return table(head, *rows) + rest


TABLES: dict[str, Callable[[], str]] = {
    'main': main_table,
    'judges': judges,
    'methods': methods,
    'small-certified': lambda: small_budget('certified'),
    'small-published': lambda: small_budget('as_published'),
    'forms': forms,
    'faces': faces,
    'cifar': cifar,
    'digits': digits,
    'few': few,
    'papers': papers,
    'auroc': auroc,
    'gpu': gpu,
}


def filled(text: str) -> str:
    """A page with its tables."""
    return BLOCK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main(arguments: list[str]) -> int:
    """Writes the tables, or says which pages lack them."""
    stale = []
    for page in PAGES:
        text = page.read_text(encoding='utf-8')
        if filled(text) == text:
            continue
        stale.append(page.name)
        if '--check' not in arguments:
            page.write_text(filled(text), encoding='utf-8')
    if '--check' not in arguments:
        return 0
    for name in stale:
        print(f'{name} is not what the tables give: run python docs/tables.py')
    return 1 if stale else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
