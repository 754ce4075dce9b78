"""report.html: what a run did, for a data owner to read.

The page's text is report.html.jinja; here is what it must be told beside the report.
"""

import json
import math
import pathlib
from typing import Any

from PIL import Image

from dpaf_jax.config.methods.dpaf import public_network
from dpaf_jax.evaluation.fidelity import few_images
from dpaf_jax.pipeline.charts import Point, line_chart
from dpaf_jax.pipeline.figures import (
    MODEL_NAMES,
    bench_figure,
    failure,
    fidelity_rows,
    figure,
    floor_name,
)
from dpaf_jax.pipeline.outlook import STRONG_EPSILON
from dpaf_jax.release.card import is_certified
from dpaf_jax.release.pictures import png_data_uri
from dpaf_jax.runtime.text import duration, factor, number
from dpaf_jax.training.progress import NOT_CURVES

NOT_COVERED = 'Measured on real test data: not covered by ε'
ATTACKS_NOT_COVERED = 'Attacks are made from real training images: not covered by ε'
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
COMMANDS = {  # by what the report has of it
    'verify': 'dpaf-jax verify {run}',
    'audit': 'dpaf-jax audit {run}',
    'attacks': 'dpaf-jax attack {run} --attack=membership',
}


def html_page(report: dict[str, Any], grid: Image.Image | None, run: str) -> str:
    """The whole page.

    Args:
        report: the content of report.json; every text in it is escaped.
        grid: picture of synthetic images, a row per class; or None.
        run: the run's folder; the page is as private as it is.

    Returns:
        HTML of one piece: it fetches nothing and runs no script.

    Raises:
        jinja2.UndefinedError: the report lacks something that the page has to say.
    """
    page = _environment().get_template('report.html.jinja')
    picture = grid and png_data_uri(grid)
    return page.render(
        **report, **_facts(report), **_checking(report, run), grid=picture
    )


def _environment() -> Any:
    """Jinja's, with what the template calls."""
    import jinja2  # late: only a page needs it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
    )
    environment.filters |= {'digits': _digits, 'duration': duration, 'number': _epsilon}
    return environment


def _facts(report: dict[str, Any]) -> dict[str, Any]:
    """By the template's names, what the report says of guarantee, data and training."""
    config, privacy = report['config'], report['privacy']
    data, names = config['data'], _class_names(config['data'])
    certified = is_certified(privacy)
    return {
        'certified': certified,
        'factor': factor(privacy['epsilon']) if certified else None,
        'claimed_epsilon': privacy.get('claimed_epsilon'),
        'reason': _reason(privacy['guarantee']),
        'warm_start': _warm_start(config),
        'public_features': public_network(config.get('dpaf', {})),
        'grouped': bool(data['group']),
        'version': report['environment']['dpaf_jax'],
        'commit': report['environment']['commit'],
        'class_names': names,
        'declared': _declared(data, privacy, config['release']),
        'figure_name': 'AUROC' if data['columns'] else 'Accuracy',
        'figures': _figures(report),
        'is_evaluated': report['floor'] is not None,
        'failure': failure(report),
        'fidelity_rows': fidelity_rows(report['fidelity']),
        'few_images': few_images(report['fidelity']),
        'per_class': _per_class(report['accuracy'], names),
        'curves': _curves(report['history'], privacy, certified),
        'mechanisms': [
            list(MECHANISM),
            *([m[key] for key in MECHANISM.values()] for m in privacy['mechanisms']),
        ],
        'config_text': json.dumps(config, indent=2, ensure_ascii=False),
    }


def _checking(report: dict[str, Any], run: str) -> dict[str, Any]:
    """By the template's names, what was checked, and what is still to be done."""
    checked = report['checked']
    commands = {name: text.format(run=run) for name, text in COMMANDS.items()}
    whole = {name: checked[name] for name in ('verify', 'audit')}
    standing = {name for name, found in whole.items() if _stands(found)}
    failed = any(not whole[name]['passed'] for name in standing)
    if any(map(_stands, checked['attacks'].values())):
        standing.add('attacks')
    return {
        'checks': _checks(checked),
        'check_failed': failed or bool(_broken(checked)),
        'commands': [commands[name] for name in commands if name not in standing],
        'next_steps': _next_steps(report, commands),
    }


def _shown(value: Any) -> Any:
    """What stands in the page for a value."""
    if value is None:
        return '–'
    return f'{value:.5g}' if isinstance(value, float) else value


def _digits(value: Any, digits: int) -> str:
    return f'{float(value):.{digits}g}'


def _epsilon(value: Any) -> str:
    return 'none' if value is None else number(float(value))


def _reason(guarantee: str) -> str:
    reason = guarantee.removeprefix('none').strip()
    return reason.removeprefix('(').removesuffix(')') or 'no reason was given'


def _stands(found: dict[str, Any] | None) -> bool:
    """Whether a check was made, and of what lies here now."""
    return bool(found and found['current'])


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
    if outcome['current']:
        return str(verdict)
    return f'OUT OF DATE: it was about another release or plan. It said: {verdict}'


def _figures(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Classifier, what it was trained on, its figure, and that of each seed."""
    sources = dict(report['accuracy'])
    if sources and report['ceiling']:
        sources['real images (ceiling)'] = report['ceiling']
    rows: list[tuple[Any, ...]] = [
        (
            MODEL_NAMES.get(model, model),
            source,
            figure(found),
            ', '.join(f'{float(value):.3f}' for value in found['values']),
        )
        for source, models in sources.items()
        for model, found in models.items()
    ]
    rows += [
        (name, 'synthetic', f'{mean:.3f}', None)
        for name, mean in bench_figure(report).items()
    ]
    if rows and report['floor'] is not None:
        name = floor_name(report['config'])
        rows.append((name, 'nothing', f'{report["floor"]:.3f}', None))
    return rows


def _per_class(accuracy: dict[str, Any], names: list[str]) -> list[list[Any]]:
    """A row for each classifier, a column for each class; the head first, or nothing."""
    rows = [
        [
            MODEL_NAMES.get(model, model),
            # A class without test images has no accuracy.
            *('–' if value is None else f'{float(value):.2f}' for value in each),
        ]
        for model, found in accuracy.get('synthetic', {}).items()
        if len(each := found.get('per_class', [])) == len(names)
    ]
    return [['Accuracy by class', *names], *rows] if rows else []


def _warm_start(config: dict[str, Any]) -> str:
    """The source of images that training started from without noise; '': none."""
    start: str = config[config['method']].get('warm_start', '')  # few methods can
    return start


def _class_names(data: dict[str, Any]) -> list[str]:
    if names := data['class_names']:
        return list(names.split('/'))
    return [str(k) for k in range(data['num_classes'])]


def _declared(
    data: dict[str, Any], privacy: dict[str, Any], release: dict[str, Any]
) -> list[tuple[str, Any]]:
    """What the config says of the data."""
    size, colour = data['image_size'], 'colour' if data['channels'] == 3 else 'grey'
    records = f'{size} × {size} pixels, {colour}'
    if data['columns']:
        records = f'rows with the columns {data["columns"]}'
    prior = data['class_prior'] or 'taken to be equal'
    if data['noisy_prior']:
        prior = 'by a noisy histogram, which ε covers'
    public = release['test_set_is_public']
    return [
        ('Kind of source', data['source']),
        ('Records', records),
        ('Classes', ', '.join(_class_names(data))),
        ('Shares of the classes', prior),
        ('N, number of training records, or more', privacy['num_examples']),
        (
            'Held out for tests, where the source has no test split',
            data['test_fraction'],
        ),
        ('Test images', 'public' if public else 'private'),
    ]


def _next_steps(report: dict[str, Any], commands: dict[str, str]) -> list[str]:
    """What is still to be done before somebody shares the release."""
    checked = report['checked']
    if not is_certified(report['privacy']):
        return ['Do not share this release: nothing is certified. Run it certified.']
    steps = []
    verified, audited = checked['verify'], checked['audit']
    if _stands(audited) and not audited['passed']:
        return ['Do not share this release: its audit has found a violation.']
    if broken := _broken(checked):
        return [
            'Do not share this release: more was found than ε permits, by '
            f'{", ".join(broken)}.'
        ]
    if not _stands(verified):
        steps.append(f'Have the release checked by itself: {commands["verify"]}')
    elif not verified['passed']:
        return ['Do not share this release: its check has failed.']
    if not any(found['current'] for found in checked['attacks'].values()):
        steps.append(f'See what an attacker finds: {commands["attacks"]}')
    if float(report['privacy']['epsilon']) > STRONG_EPSILON:
        steps.append(
            'This ε is a weak promise by itself. Where it has to stand alone, plan for '
            f'{STRONG_EPSILON} or less, with more images.'
        )
    return [
        *steps,
        'Share the folders release/ and samples/. Keep private/, checkpoints/, nonprivate/ '
        'and this report; delete private/ when nobody needs the run any more.',
    ]


def _broken(checked: dict[str, Any]) -> list[str]:
    """Names of attacks on this release that found more than its ε permits."""
    attacks = checked['attacks'].items()
    return [name for name, found in attacks if found['current'] and found['violated']]


def _curves(
    history: list[dict[str, Any]], privacy: dict[str, Any], certified: bool
) -> dict[str, str]:
    """Charts by name: a curve for each value of each phase, then ε over all phases."""
    made, spent, before = {}, list[Point](), 0
    phases = list(dict.fromkeys(row['phase'] for row in history))
    for phase in phases:
        rows = [row for row in history if row['phase'] == phase]
        for name in dict.fromkeys(name for row in rows for name in row):
            if name in (*NOT_CURVES, 'epsilon_spent'):
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
