"""report.html: what a run did, for a data owner to read.

The page's text is report.html.jinja; here is what it must be told beside the report.
"""

import json
import math
import pathlib
from typing import Any

from PIL import Image

from dpaf_jax.pipeline.charts import Point, line_chart
from dpaf_jax.release.pictures import png_data_uri
from dpaf_jax.training.history import duration, number

NOT_COVERED = 'Measured on real test images: not covered by ε'
ATTACKS_NOT_COVERED = 'Attacks are made from real training images: not covered by ε'
NOT_CURVES = ('phase', 'step', 'seconds', 'epsilon_spent')
MODEL_NAMES = {
    'wide_resnet': 'Wide ResNet',
    'cnn': 'Small CNN',
    'logistic_regression': 'Logistic regression',
    'adaboost': 'AdaBoost',
    'bagging': 'Bagging',
    'mlp': 'Multi-layer perceptron',
}
MECHANISM = {
    'Name': 'name',
    'Query': 'kind',
    'Sampling rate': 'sampling_prob',
    'Sensitivity': 'l2_sensitivity',
    'Noise multiplier': 'noise_multiplier',
    'Steps': 'steps',
    'Batch': 'expected_batch_size',
    'Capacity': 'capacity',
}
COMMANDS = {  # RUN is the run's folder
    'verify': 'python -m dpaf_jax.verify --release=RUN/release',
    'audit': 'python -m dpaf_jax.audit --config=... --out=RUN/audit',
    'attacks': 'python -m dpaf_jax.attack --attack=membership --workdir=RUN',
}


def html_page(report: dict[str, Any], grid: Image.Image | None) -> str:
    """The whole page.

    Args:
        report: the content of report.json; every text in it is escaped.
        grid: picture of synthetic images, a row per class; or None.

    Returns:
        HTML of one piece: it fetches nothing and runs no script.

    Raises:
        jinja2.UndefinedError: the report lacks something that the page has to say.
    """
    import jinja2  # late: only a page needs it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
    )
    environment.filters |= {'digits': _digits, 'duration': duration, 'number': _epsilon}
    config, privacy, checked = report['config'], report['privacy'], report['checked']
    data = config.get('data', {})
    certified = privacy['guarantee'] == 'certified'
    return environment.get_template('report.html.jinja').render(
        **report,
        certified=certified,
        factor=_factor(privacy['epsilon']) if certified else None,
        claimed_epsilon=privacy.get('claimed_epsilon'),
        reason=_reason(privacy['guarantee']),
        warm_start=config.get('dpgen', {}).get('warm_start', ''),
        checks=_checks(checked),
        check_failed=any(
            found and not found['passed']
            for found in (checked['verify'], checked['audit'])
        ),
        commands=[command for name, command in COMMANDS.items() if not checked[name]],
        grid=grid and png_data_uri(grid),
        num_classes=data.get('num_classes', 0),
        figure_name='AUROC' if data.get('columns') else 'Accuracy',
        figures=_figures(report['accuracy']),
        curves=_curves(report['history'], privacy, certified),
        mechanisms=[
            list(MECHANISM),
            *(
                [m.get(key) for key in MECHANISM.values()]
                for m in privacy['mechanisms']
            ),
        ],
        config_text=json.dumps(config, indent=2, ensure_ascii=False),
    )


def _shown(value: Any) -> Any:
    """What stands in the page for a value."""
    if value is None:
        return '–'
    return f'{value:.5g}' if isinstance(value, float) else value


def _digits(value: Any, digits: int) -> str:
    return f'{float(value):.{digits}g}'


def _epsilon(value: Any) -> str:
    return 'none' if value is None else number(float(value))


def _factor(epsilon: float) -> str:
    """e^ε, where three digits of a power of ten would say nothing."""
    if epsilon >= 14:
        return 'above a million'
    factor = math.exp(epsilon)
    return f'about {round(factor, -2):,.0f}' if factor >= 1000 else f'{factor:.3g}'


def _reason(guarantee: str) -> str:
    reason = guarantee.removeprefix('none').strip()
    return reason.removeprefix('(').removesuffix(')') or 'no reason was given'


def _checks(checked: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    """What was checked, with what outcome, and when."""
    found = {
        'Release: arithmetic and contents (verify)': checked['verify'],
        'Mechanisms: canaries through the training code (audit)': checked['audit'],
        **{f'Attack: {name}': a for name, a in checked['attacks'].items()},
    }
    return [
        (what, _outcome(outcome), outcome['when'])
        if outcome
        else (what, 'Not run.', None)
        for what, outcome in found.items()
    ]


def _outcome(outcome: dict[str, Any]) -> str:
    verdict = outcome['verdict'] or 'Run; no verdict is recorded.'
    if outcome.get('current', True):
        return str(verdict)
    return f'OUT OF DATE: it was about another release or plan. It said: {verdict}'


def _figures(accuracy: dict[str, Any]) -> list[tuple[str, ...]]:
    """Classifier, what it was trained on, mean ± std, and the figure of each seed."""
    return [
        (
            MODEL_NAMES.get(model, model),
            source,
            f'{float(found["mean"]):.3f} ± {float(found["std"]):.3f}',
            ', '.join(f'{float(value):.3f}' for value in found['values']),
        )
        for source, models in accuracy.items()
        for model, found in models.items()
    ]


def _curves(
    history: list[dict[str, Any]], privacy: dict[str, Any], certified: bool
) -> dict[str, str]:
    """Charts by name: a curve for each value of each phase, then ε over all phases."""
    made, spent, before = {}, list[Point](), 0
    phases = list(dict.fromkeys(row['phase'] for row in history))
    for phase in phases:
        rows = [row for row in history if row['phase'] == phase]
        for name in dict.fromkeys(name for row in rows for name in row):
            if name in NOT_CURVES:
                continue
            short = name.replace('_', ' ')
            title = f'{phase}: {short}'
            made[title] = line_chart(
                _points(rows, name), title=title, x_label=f'{phase} step', y_label=short
            )
        spent += [(before + step, e) for step, e in _points(rows, 'epsilon_spent')]
        before += max(row['step'] for row in rows)
    if spent and certified:
        planned = float(privacy['epsilon'])
        made['ε spent'] = line_chart(
            spent,
            title='ε spent',
            x_label=' + '.join(f'{phase} steps' for phase in phases),
            y_label='ε spent (Rényi bound)',
            reference=planned if math.isfinite(planned) else None,
            reference_label=f'planned: {number(planned)}',
            from_zero=True,
        )
    return made


def _points(rows: list[dict[str, Any]], name: str) -> list[Point]:
    return [
        (float(row['step']), float(row[name]))
        for row in rows
        if row.get(name) is not None
    ]
