"""The tables of the pages, made from results.csv, published.csv, gpu.json and the config.

    python docs/tables.py           writes each table where a page names it
    python docs/tables.py --check   exit status 1 if a page is not what the files give

A page names a table by a line `<!-- table: NAME -->`; the table ends at `<!-- end -->`. A
figure is a mean and a standard deviation over generators, with their number in brackets.
"""

import json
import re
import sys
from collections.abc import Callable

import fields
import method_tables
import recommended_tables
from figures import DOCS, NONE, RESULTS, Row, fidelity, measured, select, table

PAGES = (
    DOCS / 'explanation' / 'algorithm.md',
    DOCS / 'results.md',
    DOCS / 'results_before.md',
    DOCS / 'howto' / 'benchmark.md',
    DOCS / 'howto' / 'evaluate.md',
    DOCS / 'reference' / 'fields.md',
    DOCS.parent / 'README.md',
)
BLOCK = re.compile(r'(<!-- table: (\S+) -->\n).*?(<!-- end -->)', re.DOTALL)


def auroc() -> str:
    """Tables of numbers: what synthetic rows teach."""
    names = {
        'logreg': 'logistic regression',
        'adaboost': 'AdaBoost',
        'bagging': 'bagging',
        'mlp': 'MLP',
    }
    rows = [
        [
            label,
            *(
                measured(data=data, epsilon=epsilon, method=method, classifier=name)
                for name in names
            ),
        ]
        for label, data, epsilon, method in (
            ('`made`: DP-MERF, ε = 1', 'made', 1, 'dp_merf'),
            ('DP-MERF, ε = 10', 'made', 10, 'dp_merf'),
            ('G-PATE, ε = 10', 'made', 10, 'g_pate'),
            ('PATE-GAN, ε = 10', 'made', 10, 'pate_gan'),
            ('real rows', 'made', '', 'real'),
            ('`breast_cancer`: DP-MERF, ε = 1', 'breast_cancer', 1, 'dp_merf'),
            ('DP-MERF, ε = 10', 'breast_cancer', 10, 'dp_merf'),
            ('G-PATE, ε = 1', 'breast_cancer', 1, 'g_pate'),
            ('real rows', 'breast_cancer', '', 'real'),
        )
    ]
    return table(f'AUROC|{"|".join(names.values())}', *rows)


CALIBRATED = {
    'mnist': 'MNIST',
    'fashion_mnist': 'Fashion-MNIST',
    'celeba10k_gender': 'CelebA-10k, 32 × 32',
}


def calibration() -> str:
    """What fidelity says of images whose faults are known."""
    known = select(RESULTS, method='real', state='calibration')

    def line(row: Row) -> tuple[str, int]:
        number = int(row['records'])
        return row['overrides'], round(number, -3) or number

    names = sorted(dict.fromkeys(map(line, known)), key=lambda n: n[0] != 'as they are')
    rows = [
        [
            name,
            str(number),
            *(
                fidelity(
                    [
                        r
                        for r in known
                        if line(r) == (name, number) and r['data'] == data
                    ]
                )
                for data in CALIBRATED
            ),
        ]
        for name, number in names
    ]
    return table(f'real images|a side|{"|".join(CALIBRATED.values())}', *rows)


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
                part.get('date', NONE).partition(' ')[0],
            ]
        )
    card = ', '.join(found['card'].values()) or 'no card: a smoke run'
    head = f'{card}|measured|most memory|utilisation|date'
    rest = f'\nNo time was left for {late} other parts.\n' if late else ''
    return table(head, *rows) + rest


TABLES: dict[str, Callable[[], str]] = {
    'now': recommended_tables.now_table,
    'brief': recommended_tables.brief_table,
    'main': recommended_tables.main_table,
    'classifiers': recommended_tables.classifiers,
    'methods': method_tables.methods,
    'small-certified': lambda: method_tables.small_budget('certified'),
    'small-published': lambda: method_tables.small_budget('as_published'),
    'forms': method_tables.forms,
    'steps': method_tables.steps_to_canonical,
    'faces': recommended_tables.faces,
    'cifar': recommended_tables.cifar,
    'digits': method_tables.digits,
    'few': recommended_tables.few,
    'papers': recommended_tables.papers,
    'auroc': auroc,
    'calibration': calibration,
    'gpu': gpu,
    'fields': fields.page,
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
