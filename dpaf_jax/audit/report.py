"""What an audit hands over: audit.json, audit.png and a table for a terminal."""

import math
import os
import pathlib

from PIL import Image, ImageDraw, ImageFont

from dpaf_jax.audit.findings import CONFIDENCE, KINDS, Finding
from dpaf_jax.audit.session import Audit
from dpaf_jax.release.pictures import save_png
from dpaf_jax.runtime.files import write_json
from dpaf_jax.runtime.text import now

WIDTH, ROW, MARGIN = 1000, 26, 24
LEFT, RIGHT = 330, 720  # of the axis of epsilon
LEAST = 0.01  # epsilon where the axis begins
BLUE, RED, INK, GREY, PALE = '#2f6fde', '#c62f2f', '#222222', '#666666', '#dddddd'


def write_audit(audit: Audit, directory: str | os.PathLike[str]) -> None:
    """Writes audit.json and audit.png; neither holds anything private.

    Args:
        audit: what was found.
        directory: made if absent; files of an earlier audit are replaced.
    """
    root = pathlib.Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    outcome = {'verdict': verdict(audit), 'when': now()}
    write_json(root / 'audit.json', outcome | audit.to_json())
    save_png(picture(audit), root / 'audit.png')


def bounds_of(audit: Audit) -> list[Finding]:
    """The findings that are lower bounds on epsilon."""
    return [f for f in audit.findings if f.kind.startswith('epsilon')]


def table(audit: Audit) -> str:
    """All findings, one a line, and the verdict."""
    lines = [
        f'{"":<5} {"mechanism":<17} {"lower bound on epsilon":<26} {"claimed":>16}'
    ]
    for f in bounds_of(audit):
        lines.append(
            f'{_word(f):<5} {f.mechanism:<17} {f.measured:<7.4g} {_by(f):<18} '
            f'{f.claimed:>16.4g}   {f.detail}'
        )
    lines += ['', f'{"":<5} {"mechanism":<17} {"check":<44} {"found":>16}']
    for f in audit.findings:
        if not f.kind.startswith('epsilon'):
            what = f'{f.kind}: {f.case}'
            lines.append(
                f'{_word(f):<5} {f.mechanism:<17} {what:<44} {f.measured:>16.4g}'
                f'   {f.detail}'
            )
    return '\n'.join([*lines, '', verdict(audit)])


def verdict(audit: Audit) -> str:
    """One sentence."""
    number = len(audit.findings)
    if audit.violations:
        which = '; '.join(f'{f.mechanism}: {f.kind}' for f in audit.violations)
        return f'VIOLATION: {len(audit.violations)} of {number} checks failed ({which})'
    weak = sum(not finding.has_power for finding in audit.findings)
    without = f' ({weak} of them could have found none)' if weak else ''
    return (
        f'No violation in {number} checks{without}, at {CONFIDENCE:.1%} simultaneous '
        'confidence. That proves nothing: it is what was tried without success.'
    )


def _word(finding: Finding) -> str:
    if not finding.passed:
        return 'FAIL'
    return 'ok' if finding.has_power else '–'


def _by(finding: Finding) -> str:
    """An estimator's name where there are several."""
    return finding.kind.removeprefix('epsilon').strip() or '(any mechanism)'


def picture(audit: Audit) -> Image.Image:
    """Lower bounds beside claims on a logarithmic axis; below, the other checks."""
    bounds = bounds_of(audit)
    kinds = [k for k in KINDS if not k.startswith('epsilon')]
    names = list(dict.fromkeys(f.mechanism for f in audit.findings))
    names = [n for n in names if any(_of(audit, n, kind) for kind in kinds)]
    height = 2 * MARGIN + ROW * (len(bounds) + len(names) + 9)
    page = Image.new('RGB', (WIDTH, height), 'white')
    draw = ImageDraw.Draw(page)
    small, large = ImageFont.load_default(13), ImageFont.load_default(17)
    y = MARGIN
    draw.text((MARGIN, y), 'Audit: lower bounds on epsilon and claims', INK, large)
    y += 2 * ROW
    top, most = y, max([1.0, *(max(f.measured, f.claimed) for f in bounds)])
    axis = _axis(most)
    y += ROW * len(bounds)
    for tick in axis:
        x = _x(tick, most)
        draw.line((x, top - 6, x, y), PALE)
        draw.text((x, y + 4), f'{tick:g}', GREY, small, anchor='ma')
    for i, finding in enumerate(bounds):
        _bar(draw, finding, top + i * ROW, most, small)
    draw.text(
        (LEFT, y + ROW), 'epsilon   bar: lower bound   line: claimed', GREY, small
    )
    y += 3 * ROW
    draw.text((MARGIN, y), 'Other checks: passed of made', INK, large)
    y += ROW + 10
    columns = {kind: 250 + 125 * i for i, kind in enumerate(kinds)}
    for kind, x in columns.items():
        draw.text((x, y), kind, GREY, small, anchor='ma')
    for name in names:
        y += ROW
        draw.text((MARGIN, y), name, INK, small)
        for kind, x in columns.items():
            made = _of(audit, name, kind)
            if made:
                passed = sum(f.passed for f in made)
                colour = INK if passed == len(made) else RED
                text = f'{passed}/{len(made)}'
                draw.text((x, y), text, colour, small, anchor='ma')
    draw.text((MARGIN, y + 2 * ROW), verdict(audit)[:130], INK, small)
    return page


def _of(audit: Audit, name: str, kind: str) -> list[Finding]:
    return [f for f in audit.findings if f.mechanism == name and f.kind == kind]


def _axis(most: float) -> list[float]:
    return [10.0**i for i in range(-2, math.ceil(math.log10(most)) + 1)]


def _x(epsilon: float, most: float) -> float:
    decades = math.log10(_axis(most)[-1] / LEAST)
    at = math.log10(max(epsilon, LEAST) / LEAST) / decades
    return LEFT + at * (RIGHT - LEFT)


def _bar(
    draw: ImageDraw.ImageDraw,
    finding: Finding,
    y: int,
    most: float,
    font: ImageFont.ImageFont | ImageFont.FreeTypeFont,
) -> None:
    colour = BLUE if finding.passed else RED
    label = f'{finding.mechanism}  {_by(finding)}'
    draw.text((MARGIN, y + 3), label, INK, font)
    end = _x(finding.measured, most)
    draw.rectangle((LEFT, y + 4, max(end, LEFT + 1), y + ROW - 8), fill=colour)
    claim = _x(finding.claimed, most)
    draw.line((claim, y, claim, y + ROW - 4), INK, 2)
    text = f'at least {finding.measured:.3g}, claimed {finding.claimed:.3g}'
    draw.text((RIGHT + 20, y + 3), text, colour, font)
