"""When something was done, as files and reports say it."""

import datetime


def now() -> str:
    """The minute, in UTC: '2026-03-04 05:06 UTC'."""
    return datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%d %H:%M UTC')
