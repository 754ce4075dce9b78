"""How numbers and times are written for people."""

import datetime
import math


def duration(seconds: float) -> str:
    """Seconds as people say them: '9 s', '4 min 10 s', '2 h 05 min'."""
    whole = round(seconds)
    if whole < 60:
        return f'{whole} s'
    if whole < 3600:
        return f'{whole // 60} min {whole % 60:02d} s'
    return f'{whole // 3600} h {whole % 3600 // 60:02d} min'


def now() -> str:
    """The minute, in UTC, as files and reports say it: '2026-03-04 05:06 UTC'."""
    return datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%d %H:%M UTC')


def between(low: float, high: float) -> str:
    """Two rough times in one unit, not narrower than they are: '13 to 54 min'."""
    unit, seconds = 'h', 3600
    if high < 3 * 3600:
        unit, seconds = ('min', 60) if high >= 120 else ('s', 1)
    return f'{max(1, int(low / seconds))} to {math.ceil(high / seconds)} {unit}'


def number(value: float) -> str:
    """An epsilon for people: three digits, or all before the point; '∞' if infinite."""
    if math.isinf(value):
        return '∞'
    return f'{value:.0f}' if 1000 <= value < 1e6 else f'{value:.3g}'


def factor(epsilon: float) -> str:
    """e^epsilon in two digits: by how much one record can move a probability at most.

    Rounded up, as a bound must be; beyond 30 nobody reads the number.

    Example:
        >>> factor(1.0), factor(10.0), factor(40.0)
        ('2.8', '23 000', 'e^40')
    """
    if epsilon > 30:
        return f'e^{epsilon:g}'
    whole = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(whole)) - 1)
    up = math.ceil(whole / unit) * unit
    return f'{up:,.0f}'.replace(',', ' ') if up >= 10 else f'{up:.1f}'
