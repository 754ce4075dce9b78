"""The run's own report: report.json for machines, report.html for people.

It holds accuracies on real test images, wall times and, where they were asked for, what
classifiers learnt from real training images and what attacks found with them. No epsilon
covers these, so it stays outside the release. Nothing else in it depends on real data except
through charged mechanisms: the pictures are synthetic, the curves are post-processing of
noisy outputs.
"""

import importlib.metadata
import json
import math
import os
import pathlib
import platform
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

import jax
from PIL import Image

from dpaf_jax.pipeline.report_page import ATTACKS_NOT_COVERED, NOT_COVERED, html_page
from dpaf_jax.runtime.files import write_bytes
from dpaf_jax.runtime.text import now
from dpaf_jax.runtime.version import VERSION

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'dp-accounting')


def write_report(
    workdir: str | os.PathLike[str],
    found: Mapping[str, Any],
    sample_grid: Image.Image | None,
) -> dict[str, Any]:
    """Writes `<workdir>/report.json` and `<workdir>/report.html`.

    Args:
        workdir: the run's folder; each file appears whole or not at all.
        found: by key what the run has left.
            config: of the run, as plain values.
            privacy: the content of privacy.json.
            accuracy: by what was trained on ('synthetic'), then by model: `mean`, `std`
                and `values` in [0, 1]; empty if nothing was evaluated.
            fidelity: of synthetic images against test images, as `suite.evaluate` has it;
                empty if it was not measured.
            floor: the figure without any training; None if nothing was evaluated.
            ceiling: as `accuracy` by model, of real training images; empty if it was not
                asked for.
            checked: what `verify`, audits and attacks found, as `checks.outcomes` gives it.
            history: rows {'phase', 'step', 'seconds', 'epsilon_spent', ...}, oldest first;
                but for seconds, only values that epsilon covers.
            wall_seconds: by stage; not covered by epsilon.
            environment: versions and hardware, as `environment()` gives them.
        sample_grid: picture of synthetic images, a row per class; or None.

    Returns:
        The content of report.json; numbers that are not finite are the strings 'inf',
        '-inf' and 'nan', which `float` reads.

    Raises:
        OSError: the folder cannot be written.
    """
    report = _plain(
        {
            'method': found['config']['method'],
            'when': now(),
            'accuracy_note': NOT_COVERED,
            'checked_note': ATTACKS_NOT_COVERED,
            **found,
        }
    )
    text = json.dumps(report, indent=2, allow_nan=False) + '\n'
    page = html_page(report, sample_grid, shlex.quote(str(workdir)))
    write_bytes(pathlib.Path(workdir) / 'report.html', page.encode())
    write_bytes(pathlib.Path(workdir) / 'report.json', text.encode())
    return report


def environment() -> dict[str, Any]:
    """Versions and hardware: everything that a reader needs to judge a wall time."""
    devices = jax.devices()
    return {
        'dpaf_jax': VERSION,
        'commit': _commit(),
        'python': platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        'platform': platform.platform(),
        'backend': jax.default_backend(),
        'devices': len(devices),
        'device_kind': devices[0].device_kind,
        'cpu_count': os.cpu_count(),
    }


def _commit() -> str:
    """Of the clone that the package is run from, and whether it was changed since."""
    root = pathlib.Path(__file__).parents[2]
    if not (root / '.git').exists():
        return 'none (an installed package)'
    command = ('git', '-C', str(root), 'describe', '--always', '--dirty', '--abbrev=12')
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 'unknown'
    return found.stdout.strip()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return 'not installed'


def _plain(value: Any) -> Any:
    """The same with nothing in it but what strict JSON has."""
    if isinstance(value, Mapping):
        return {str(name): _plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, 'item') and getattr(value, 'ndim', 0) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
