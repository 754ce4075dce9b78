"""report.html: what a run did, for a data owner to read.

What a reader must not miss comes first: what is guaranteed, or that nothing is.
"""

import json
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from PIL import Image

from dpaf_jax.pipeline.charts import Point, line_chart
from dpaf_jax.release.pictures import png_data_uri
from dpaf_jax.training.history import duration, number

NOT_COVERED = 'Measured on real test images: not covered by ε'
ATTACKS_NOT_COVERED = 'Attacks are made from real training images: not covered by ε'
TIMES_NOT_COVERED = (
    'How long something takes may depend on real data: not covered by ε.'
)
NOT_CURVES = ('phase', 'step', 'seconds', 'epsilon_spent')
MODEL_NAMES = {
    'wide_resnet': 'Wide ResNet',
    'cnn': 'Small CNN',
    'logistic_regression': 'Logistic regression',
    'adaboost': 'AdaBoost',
    'bagging': 'Bagging',
    'mlp': 'Multi-layer perceptron',
}

# Light and dark by the reader's setting; no font, script or picture from elsewhere.
STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2330;
  --muted: #667085; --grid: #e6e9ef; --series: #2563c9; --good: #14734a;
  --bad: #a1201c; --bad-page: #fdecea; --warn-page: #fff6df; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1b2029;
  --text: #e6e9f0; --muted: #9aa4b5; --grid: #303847; --series: #7fb0ff;
  --good: #6fd3a3; --bad: #ff9d94; --bad-page: #43201f; --warn-page: #3b3318; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 1.2rem; }
h2 { font-size: 1.15rem; margin: 0 0 .7rem; }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 12px;
  padding: 1.3rem 1.5rem; margin: 0 0 1.1rem; }
.muted { color: var(--muted); } p { margin: .5rem 0; max-width: 70ch; }
.bad { background: var(--bad-page); border: 2px solid var(--bad); }
.bad h2, .bad .big { color: var(--bad); }
.warn { background: var(--warn-page); padding: .55rem .9rem; border-radius: 8px; }
.big { font-size: 2.3rem; font-weight: 650; line-height: 1.2; margin: .1rem 0 .4rem; }
.seal { color: var(--good); font-size: 1rem; font-weight: 600; margin-left: .8rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .42rem .9rem .42rem 0; vertical-align: top;
  border-bottom: 1px solid var(--grid); }
th { color: var(--muted); font-weight: 500; font-size: .87rem; }
tr:last-child td { border-bottom: 0; }
.scroll { overflow-x: auto; } .n { text-align: right; }
.grid { display: flex; gap: .8rem; max-width: 36rem; }
.grid ol { list-style: none; margin: 0; padding: 0; display: grid; color: var(--muted);
  grid-auto-rows: 1fr; align-items: center; text-align: right; font-size: .85rem; }
.grid img { flex: 1; min-width: 0;
  width: 100%; height: auto; image-rendering: pixelated; }
.charts { display: grid; gap: 1.3rem 1.8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); }
figure { margin: 0; } figcaption { font-weight: 600; font-size: .92rem; }
svg { width: 100%; height: auto; display: block; }
.bar { background: var(--series); height: .7rem; border-radius: 3px;
  min-width: 2px; margin-top: .42rem; }
code { font-size: .88em; overflow-wrap: anywhere; }
details { margin-top: .9rem; } summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; font-size: .84rem; line-height: 1.45; }
"""


def html_page(report: dict[str, Any], grid: Image.Image | None) -> str:
    """The whole page.

    Args:
        report: the content of report.json; every text in it is escaped.
        grid: picture of synthetic images, a row per class; or None.

    Returns:
        HTML of one piece: it fetches nothing and runs no script.
    """
    title = f'Differentially private images: {report["method"]}'
    sections = [
        _headline(report['privacy']),
        _warm_start(report['config']),
        _checked(report['checked']),
        _samples(grid, report['config']),
        _accuracy(report['accuracy'], figure_name(report['config'])),
        _curves(report['history'], report['privacy']),
        _mechanisms(report['privacy']),
        _wall_time(report['wall_seconds']),
        _environment(report['environment'], report['config']),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n'
        f'<body><main><h1>{escape(title)}</h1>\n'
        + '\n'.join(filter(None, sections))
        + '\n'
        '</main></body></html>\n'
    )


def _section(title: str, body: str, css_class: str = '') -> str:
    attribute = f' class="{css_class}"' if css_class else ''
    return f'<section{attribute}><h2>{escape(title)}</h2>\n{body}</section>'


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """All cells are escaped; columns whose cells are numbers stand to the right."""
    right = [
        bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(head))
    ]

    def line(tag: str, cells: Sequence[Any]) -> str:
        texts = [
            f'<{tag}{" class=n" if r else ""}>{escape(_text(cell))}</{tag}>'
            for cell, r in zip(cells, right, strict=True)
        ]
        return f'<tr>{"".join(texts)}</tr>'

    body = '\n'.join(line('td', row) for row in rows)
    return f'<div class="scroll"><table>{line("th", head)}\n{body}</table></div>'


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _text(value: Any) -> str:
    if value is None:
        return '–'
    return f'{value:.5g}' if isinstance(value, float) else str(value)


def _headline(privacy: dict[str, Any]) -> str:
    if privacy['guarantee'] != 'certified':
        return _no_guarantee(privacy)
    epsilon, delta = float(privacy['epsilon']), float(privacy['delta'])
    return _section(
        'Privacy guarantee',
        f'<p class="big">ε = {_epsilon(epsilon)}, δ = {delta:.3g}'
        '<span class="seal">✓ certified</span></p>'
        f'<p>{_meaning(epsilon, delta)}</p>'
        '<p><b>The unit is one image with its label, not one person.</b> Somebody with '
        'k images among the training data is protected by group privacy only: at '
        'k times this ε, and at a δ that grows faster than k.</p>'
        f'{_delta_warning(privacy)}'
        f'<p class="muted">Neighbours: {escape(privacy["neighbors"])}. '
        f'N = {_text(privacy["num_examples"])}, public. By Rényi DP, a looser '
        f'accountant: ε = {_epsilon(privacy["epsilon_rdp"])}.</p>',
    )


def _meaning(epsilon: float, delta: float) -> str:
    factor = f'{math.exp(epsilon):.3g}'
    if math.exp(epsilon) >= 1000:  # three digits of a power of ten say nothing
        factor = (
            f'about {round(math.exp(epsilon), -2):,.0f}'
            if epsilon < 14
            else 'above a million'
        )
    return (
        'Whether or not any one image was among the training data, every outcome of '
        f'this training is equally likely up to a factor of e^ε = {factor}, except for '
        f'events of total probability δ = {delta:.3g}. Smaller is safer: at ε = 1 the '
        'factor is 2.7; at ε = 10 it is about 22,000, which by itself promises little '
        'against the strongest conceivable attacker.'
    )


def _no_guarantee(privacy: dict[str, Any]) -> str:
    reason = privacy['guarantee'].removeprefix('none').strip().removeprefix('(')
    reason = reason.removesuffix(')') or 'no reason was given'
    claimed = privacy.get('claimed_epsilon')
    big = 'certified ε: none'
    if claimed is not None:
        big = f'claimed ε = {_epsilon(claimed)}, {big}'
    return _section(
        'No privacy guarantee',
        f'<p class="big">{big}</p><p><b>Reason:</b> {escape(reason)}.</p>'
        '<p>Nothing bounds what the generator and its images tell about a single '
        'training image. Do not hand them to anybody who may not see the training '
        'data.</p>',
        'bad',
    )


def _warm_start(config: dict[str, Any]) -> str:
    """DPGEN's, which uses data that no epsilon covers."""
    source = config.get('dpgen', {}).get('warm_start', '')
    if not source:
        return ''
    if source.startswith('private:'):
        text = f'Training started on private images as they are ({source}).'
        return _section('Warm start', f'<p>{escape(text)}</p>', 'bad')
    return _section(
        'Public data were used',
        '<p>Training started, without noise, on images that are public by the word of '
        f'whoever ran it (source: {escape(source)}). ε does not cover them. Compare '
        'this run with those of methods that use public data too.</p>',
    )


COMMANDS = {  # RUN is the run's folder
    'verify': 'python -m dpaf_jax.verify --release=RUN/release',
    'audit': 'python -m dpaf_jax.audit --config=... --out=RUN/audit',
    'attacks': 'python -m dpaf_jax.attack --attack=membership --workdir=RUN',
}


def _checked(checked: dict[str, Any]) -> str:
    """Outcomes of commands that were run, and the commands that were not."""
    found = {
        'Release: arithmetic and contents (verify)': checked['verify'],
        'Mechanisms: canaries through the training code (audit)': checked['audit'],
        **{f'Attack: {name}': a for name, a in checked['attacks'].items()},
    }
    rows = [
        (what, _outcome(outcome), outcome['when'])
        if outcome
        else (what, 'Not run.', None)
        for what, outcome in found.items()
    ]
    body = _table(('What', 'Outcome', 'When'), rows)
    if checked['attacks']:
        body = (
            f'<p class="warn"><b>{ATTACKS_NOT_COVERED}.</b> What they found is for whoever '
            'may see these images; it does not belong to the release.</p>'
        ) + body
    missing = [command for name, command in COMMANDS.items() if not checked[name]]
    if missing:
        commands = '<br>'.join(f'<code>{escape(command)}</code>' for command in missing)
        body += (
            f'<p class="muted">Not run yet, with RUN for this run’s folder:<br>{commands}'
            '<br>The report stage, run again, then shows the outcome here.</p>'
        )
    body += (
        '<p class="muted">verify checks arithmetic and contents, not what a machine '
        'executed. That an audit or an attack finds nothing proves nothing.</p>'
    )
    failed = any(o and not o['passed'] for o in (checked['verify'], checked['audit']))
    return _section('What was checked', body, 'bad' if failed else '')


def _outcome(outcome: dict[str, Any]) -> str:
    verdict = outcome['verdict'] or 'Run; no verdict is recorded.'
    if outcome.get('current', True):
        return str(verdict)
    return f'OUT OF DATE: it was about another release or plan. It said: {verdict}'


def _delta_warning(privacy: dict[str, Any]) -> str:
    delta, num_examples = privacy['delta'], privacy['num_examples']
    if not num_examples or delta < 1 / num_examples:
        return ''
    return (
        f'<p class="warn">δ = {delta:.3g} is not below 1/N = {1 / num_examples:.2g}: '
        'publishing some image at random and in full would be within this δ.</p>'
    )


def _epsilon(value: Any) -> str:
    return 'none' if value is None else number(float(value))


def _samples(grid: Image.Image | None, config: dict[str, Any]) -> str:
    if grid is None:
        return ''
    num_classes = config.get('data', {}).get('num_classes', 0)
    labels = ''.join(f'<li>{k}</li>' for k in range(num_classes))
    return _section(
        'Synthetic images by class',
        f'<div class="grid"><ol>{labels}</ol><img alt="Synthetic images, one row per '
        f'class" src="{png_data_uri(grid)}"></div>'
        '<p class="muted">Drawn from the generator: the first ones of each class, not '
        'chosen ones. No real image is shown.</p>',
    )


def figure_name(config: dict[str, Any]) -> str:
    """What the figures of usefulness are."""
    return 'AUROC' if config.get('data', {}).get('columns') else 'Accuracy'


def _accuracy(accuracy: dict[str, Any], name: str) -> str:
    rows = [
        (
            MODEL_NAMES.get(model, model),
            source,
            f'{float(a["mean"]):.3f} ± {float(a["std"]):.3f}',
            ', '.join(f'{float(value):.3f}' for value in a['values']),
        )
        for source, models in accuracy.items()
        for model, a in models.items()
    ]
    if not rows:
        return _section('Usefulness', '<p class="muted">Not evaluated.</p>')
    head = ('Classifier', 'Trained on', f'{name} (mean ± std)', 'Each seed')
    return _section(
        'Usefulness',
        f'<p class="warn"><b>{NOT_COVERED}.</b> These figures are for whoever may see '
        'the test data; they do not belong to the release.</p>'
        + _table(head, rows)
        + '<p class="muted">Each classifier is trained on synthetic images only and '
        'tested after its last epoch. Std is the sample standard deviation over '
        'seeds.</p>',
    )


def _curves(history: list[dict[str, Any]], privacy: dict[str, Any]) -> str:
    phases = list(dict.fromkeys(row['phase'] for row in history))
    figures = []
    for phase in phases:
        rows = [row for row in history if row['phase'] == phase]
        names = dict.fromkeys(name for row in rows for name in row)
        for name in names:
            if name in NOT_CURVES:
                continue
            points = _points(rows, name, lambda row: float(row['step']))
            title = name.replace('_', ' ')
            figures.append(_figure(points, f'{phase}: {title}', f'{phase} step', title))
    spent = _points(history, 'epsilon_spent', _run_step(history, phases))
    if spent and privacy['guarantee'] == 'certified':
        planned = float(privacy['epsilon'])
        figures.append(
            _figure(
                spent,
                'ε spent',
                ' + '.join(f'{phase} steps' for phase in phases),
                'ε spent (Rényi bound)',
                reference=planned if math.isfinite(planned) else None,
                reference_label=f'planned: {number(planned)}',
                from_zero=True,
            )
        )
    if not figures:
        return ''
    note = 'No guarantee covers the data behind these curves either.'
    if privacy['guarantee'] == 'certified':
        note = (
            'Losses on noisy aggregates and on synthetic images, and ε: ε covers all of '
            'this. The ε stated above is the plan’s, also for a run that stopped early.'
        )
    return _section(
        'Training',
        f'<div class="charts">{"".join(figures)}</div><p class="muted">{note}</p>',
    )


def _points(
    rows: Sequence[dict[str, Any]], name: str, x_of: Callable[[dict[str, Any]], float]
) -> list[Point]:
    return [(x_of(row), float(row[name])) for row in rows if row.get(name) is not None]


def _run_step(
    history: Sequence[dict[str, Any]], phases: Sequence[str]
) -> Callable[[dict[str, Any]], float]:
    """Steps counted on from phase to phase."""
    before, total = {}, 0
    for phase in phases:
        before[phase] = total
        total += max(row['step'] for row in history if row['phase'] == phase)
    return lambda row: float(before[row['phase']] + row['step'])


def _figure(
    points: list[Point], title: str, x_label: str, y_label: str, **more: Any
) -> str:
    chart = line_chart(points, title=title, x_label=x_label, y_label=y_label, **more)
    chart = chart or f'<p>{escape(title)}: nothing was recorded.</p>'
    return f'<figure><figcaption>{escape(title)}</figcaption>{chart}</figure>'


def _mechanisms(privacy: dict[str, Any]) -> str:
    columns = {
        'Name': 'name',
        'Query': 'kind',
        'Sampling rate': 'sampling_prob',
        'Sensitivity': 'l2_sensitivity',
        'Noise multiplier': 'noise_multiplier',
        'Steps': 'steps',
        'Batch': 'expected_batch_size',
        'Capacity': 'capacity',
    }
    rows = [[m.get(key) for key in columns.values()] for m in privacy['mechanisms']]
    return _section(
        'Mechanisms',
        _table(list(columns), rows)
        + '<p class="muted">Every way by which a training image reaches the release. '
        'Noise standard deviation is noise multiplier × sensitivity, on the sum over '
        'a batch; sensitivity is in ℓ2; batch is the expected size, capacity the most '
        'that fits, of all draws that share it. Of δ = '
        f'{float(privacy["delta"]):.3g}, {float(privacy["overflow_delta"]):.2g} pays '
        'for batches that do not fit. Accountant: '
        f'{escape(privacy["accountant"])}.</p>',
    )


def _wall_time(wall_seconds: dict[str, float]) -> str:
    if not wall_seconds:
        return ''
    longest = max(*wall_seconds.values(), 1e-9)
    rows = ''.join(
        f'<tr><td>{escape(stage)}</td><td class=n>{duration(seconds)}</td><td '
        f'style="width:60%"><div class="bar" style="width:{seconds / longest:.1%}">'
        '</div></td></tr>'
        for stage, seconds in wall_seconds.items()
    )
    total = duration(sum(wall_seconds.values()))
    return _section(
        'Wall time',
        f'<table>{rows}</table><p>In all: <b>{total}</b>.</p>'
        f'<p class="muted">{TIMES_NOT_COVERED}</p>',
    )


def _environment(environment: dict[str, Any], config: dict[str, Any]) -> str:
    text = json.dumps(config, indent=2, ensure_ascii=False)
    return _section(
        'Versions, hardware, configuration',
        _table(('What', 'Value'), list(environment.items()))
        + '<details><summary>Configuration</summary>'
        f'<pre>{escape(text)}</pre></details>',
    )
