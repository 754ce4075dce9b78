"""DPGEN, tables 1 to 5."""

import math
from typing import Any

from dpaf_jax.tables.papers.methods import NO_NOISE, recommended, row
from dpaf_jax.tables.spec import CLAIMED, NONE, Row, Table

FACES, ROOMS = 'celeba64:gender', 'lsun_bedroom'
LARGE = {'data.image_size': 128, 'networks.layers': 'C3-C1-x'}
BASELINES = ('DP-DCGAN', 'GS-WGAN', 'DP-MERF', 'P3GM', 'DataLens', 'G-PATE')
MOSTLY_PRIVATE = 'ε = 10^4 of four baselines is no privacy.'


def _dpgen(label: str, *epsilons: float, **settings: Any) -> Row:
    return Row(
        label=label,
        method='dpgen',
        printed_epsilon=NONE if epsilons == NO_NOISE else CLAIMED,
        settings=settings,
        epsilons=epsilons,
    )


STEPS = (
    'Printed steps are 15 000 and 30 000 on faces, 20 000 and 40 000 on bedrooms; here 15 000 '
    'throughout.'
)
TABLES = (
    Table(
        name='dpgen/1',
        title='Fidelity by resolution and epsilon',
        source='DPGEN, Table 1',
        rows=(_dpgen('DPGEN, 64 × 64'), _dpgen('DPGEN, 128 × 128', **LARGE)),
        data=(FACES, ROOMS),
        epsilons=(5.0, 10.0, 20.0, math.inf),
        figures=('is', 'fid'),
        note=STEPS,
    ),
    Table(
        name='dpgen/2',
        title='Fidelity on faces',
        source='DPGEN, Table 2',
        rows=(
            *(row(name, 1e4) for name in BASELINES[:4]),
            row('DataLens', 10.0),
            row('G-PATE', 10.0),
            row('DPGEN', 10.0),
            _dpgen('DPGEN without noise', math.inf),
            recommended(10.0),
        ),
        data=(FACES,),
        epsilons=(None,),
        figures=('is', 'fid'),
        note=MOSTLY_PRIVATE,
    ),
    Table(
        name='dpgen/3',
        title='Accuracy of all methods',
        source='DPGEN, Table 3',
        rows=(
            *(row(name, 1.0, 10.0) for name in BASELINES),
            row('DPGEN'),
            recommended(1.0, 10.0),
        ),
        data=('mnist', 'fashion_mnist', FACES, 'celeba64:hair'),
        epsilons=(math.inf, 1.0, 10.0),
    ),
    Table(
        name='dpgen/4',
        title='Accuracy at epsilon 0.2',
        source='DPGEN, Table 4',
        rows=(*map(row, (*BASELINES[1:], 'DPGEN')), recommended()),
        data=('mnist', 'fashion_mnist'),
        epsilons=(0.2,),
    ),
    Table(
        name='dpgen/5',
        title='Fidelity by the number of candidates k',
        source='DPGEN, Table 5',
        rows=tuple(
            _dpgen(f'k = {k}, {size}', **{'dpgen.candidates': k}, **more)
            for size, more in (('64 × 64', {}), ('128 × 128', LARGE))
            for k in (5, 10, 20)
        ),
        data=(FACES, ROOMS),
        epsilons=(5.0,),
        figures=('is', 'fid'),
        note='k belongs to the printed sanitiser: the certified rows do not depend on it. '
        'At k = 10 the printed FID at 64 × 64 is that of Table 1 at ε = 5, the Inception '
        'scores are those at ε = 10, and FID at 128 × 128 is in neither. Its column of real '
        'images is Table 1 at ε = ∞. ' + STEPS,
    ),
)
