"""Tables of what is recommended: every data set, and beside published figures."""

import re
from collections.abc import Callable

from figures import (
    CELLS,
    FEWER_IMAGES,
    GREY,
    NONE,
    NOW,
    PUBLIC_NOW,
    PUBLISHED,
    RESULTS,
    Row,
    before,
    measured,
    published,
    real,
    recommended,
    select,
    table,
    with_fidelity,
)

# What is added to a config, as results.csv writes it.
GENDER = 'data.attribute=gender data.num_classes=2 data.channels=3'
HAIR = 'data.attribute=hair data.num_classes=3 data.channels=3'
CIFAR = 'data.num_classes=10 data.channels=3 data.num_examples=50000 data.image_size=32'
SIDE_64 = ' data.image_size=64 dpaf.generator_steps=600 samples.num=20000'
SIDE_128 = ' data.image_size=128 dpaf.generator_steps=400 samples.num=10000'
FEW = 'data.num_examples='
SHORT = ' dpaf.generator_steps=600'
WIDE = 'evaluation.wide_resnet=16-2'
LONGER = ' evaluation.epochs=3'


def now_table() -> str:
    """What is recommended today: accuracy; Fréchet distance, precision, recall."""

    def line(label: str, config: str, paper: str = NONE) -> list[str]:
        states = PUBLIC_NOW if config.startswith('public.py') else (NOW,)
        wanted = {'classifier': 'cnn', 'guarantee': 'certified'}

        def runs(epsilon: int) -> list[Row]:
            name = f'{config},{epsilon}'
            found = (select(RESULTS, config=name, state=s, **wanted) for s in states)
            return next(filter(None, found), [])

        return [label, *(with_fidelity(runs(e)) for e in (1, 3, 10)), paper]

    return table(
        'data|ε = 1|ε = 3|ε = 10|best published with a small CNN, ε = 1 / 10',
        *(
            line(label, f'recommended.py:{data}', f'DPDM {published("DPDM", data)}')
            for data, label in GREY.items()
        ),
        line('CelebA-10k by gender, 32 × 32', 'recommended.py:celeba32:gender'),
        line('CelebA-10k by hair colour, 32 × 32', 'recommended.py:celeba32:hair'),
        line('CelebA-10k by gender, 64 × 64', 'recommended.py:celeba64:gender'),
        line(
            'CelebA-10k by gender, 32 × 32, public features',
            'public.py:celeba32:gender',
        ),
        line(
            'UTKFace-10k by gender, 64 × 64, public features', 'public.py:folder:PATH'
        ),
        line('digits of 8 × 8, at 16 × 16', 'recommended.py:digits'),
    )


def brief_table() -> str:
    """Accuracy of what is recommended today, beside what real images teach a CNN."""

    def line(label: str, source: str, ceiling: str) -> list[str]:
        runs = [recommended(source, epsilon) for epsilon in (1, 3, 10)]
        return [label, *(_without_spread(run) for run in runs), ceiling]

    return table(
        'images|ε = 1|ε = 3|ε = 10|trained on real images',
        *(line(label, data, real(data, '')) for data, label in GREY.items()),
        line('faces by gender', 'celeba32:gender', real('celeba10k_gender', GENDER)),
        line('faces by hair colour', 'celeba32:hair', real('celeba10k_hair', HAIR)),
    )


def _without_spread(figure: str) -> str:
    """`measured`'s words without what a stranger need not know."""
    return re.sub(r' ± [0-9.e-]+| \(1\)', '', figure)


def main_table() -> str:
    """What was recommended before 2026-11-26, on every data set."""

    def grey(data: str, shown: str, paper: str, **wanted: object) -> list[str]:
        pair = [before(data, epsilon, **wanted) for epsilon in (1, 10)]
        ceiling = NONE if wanted else real(data, '')
        return [GREY[data], shown, *pair, f'{paper} {published(paper, data)}', ceiling]

    def faces(label: str, data: str, overrides: str) -> list[str]:
        found = before('celeba:PATH', 10, data=data, overrides=overrides)
        return [label, 'small CNN', NONE, found, NONE, real(data, overrides)]

    cifar = [before('npz:PATH', e, overrides=CIFAR) for e in (1, 10)]
    digits = [before('digits', e) for e in (1, 10)]
    wide = {'classifier': 'wrn-16-2'}
    return table(
        'data|classifier|ε = 1|ε = 10|best published, ε = 1 / 10|real images',
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
        ['digits of 8 × 8, at 16 × 16', 'small CNN', *digits, NONE, real('digits', '')],
    )


def classifiers() -> str:
    """The config of before by one classifier beside the next."""

    def line(name: str, source: str, epsilon: int, overrides: str = '') -> list[str]:
        return [
            f'{name}, ε = {epsilon}',
            before(source, epsilon, overrides=overrides),
            before(source, epsilon, overrides=overrides, classifier='logreg'),
        ]

    return table(
        'data|small CNN|logistic regression',
        *(line(GREY[data], data, epsilon) for data, epsilon in CELLS),
        *(line('CIFAR-10', 'npz:PATH', epsilon, CIFAR) for epsilon in (1, 10)),
        line('CelebA-10k, gender', 'celeba:PATH', 10, GENDER),
        line('CelebA-10k, hair colour', 'celeba:PATH', 10, HAIR),
        *(line('digits', 'digits', epsilon) for epsilon in (1, 10)),
    )


def faces() -> str:
    """CelebA-10k by task and size."""

    def line(label: str, data: str, size: str = '') -> list[str]:
        own = GENDER if data.endswith('gender') else HAIR
        found = [
            before('celeba:PATH', 10, data=data, overrides=own + size, classifier=c)
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
                before('npz:PATH', e, overrides=CIFAR, classifier=classifier)
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
                before(
                    data, epsilon, overrides=f'{FEW}{number}{added}', classifier=name
                )
                for name in ('cnn', 'logreg')
            ),
        ]
        for data, number, epsilon, added in cases
    ]
    return table('|small CNN|logistic regression', *rows)


def papers() -> str:
    """Published figures beside ours."""

    def ours(label: str, find: Callable[[str, int], str]) -> list[str]:
        pairs = []
        for data in GREY:
            found = [find(data, epsilon).split()[0] for epsilon in (1, 10)]
            pairs.append(' / '.join(each.removeprefix('0') for each in found))
        return [label, *pairs, 'proven here', 'measured here']

    def wide(data: str, epsilon: int) -> str:
        overrides = WIDE + LONGER * (data == 'mnist')
        return before(data, epsilon, overrides=overrides, classifier='wrn-16-2')

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
        ours('`recommended.py`, small CNN', recommended),
        ours('`recommended.py` before 2026-11-26, WRN-16-2', wide),
        *rows.values(),
    )
