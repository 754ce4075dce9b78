"""What was checked of a run, when, and with what outcome: as its folder says.

Nothing is checked here. `verify`, `audit` and `attack` are commands of their own, for
whoever does not believe the run; each leaves its outcome in the run's folder.
"""

from typing import Any

from dpaf_jax.release.bundle import checksum, generator_checksum
from dpaf_jax.runtime.files import read_json
from dpaf_jax.training.workdir import NOT_PRIVATE, Workdir


def outcomes(workdir: Workdir, privacy: dict[str, Any]) -> dict[str, Any]:
    """Reads the outcomes that lie in a run's folder.

    Args:
        workdir: with a release.
        privacy: the content of the release's privacy.json.

    Returns:
        `verify` and `audit`: None where it was not run, else `verdict`, `when`,
        `passed`, and `current`: whether it was about what lies here now. `attacks`: by
        name `verdict` and `when`, None where a file does not say it, `violated`: whether
        it found more than epsilon permits, and `current`. Attacks are made
        from real training images: their outcomes are covered by no epsilon.

    Raises:
        UserError: a file is damaged.
    """
    attacked = generator_checksum(workdir.release)
    verification, audit = read_json(workdir.verification), read_json(workdir.audit)
    return {
        'verify': verification
        and _outcome(
            verification,
            passed=bool(verification.get('passed')),
            current=verification.get('release') == checksum(workdir.release),
        ),
        'audit': audit
        and _outcome(
            audit,
            passed=not audit.get('violation_found', True),
            current=audit.get('plan') == privacy,
        ),
        'attacks': {
            path.stem.removesuffix(NOT_PRIVATE): _attacked(read_json(path), attacked)
            for path in sorted(workdir.attacks.glob('*.json'))
        },
    }


def _outcome(found: dict[str, Any], **more: bool) -> dict[str, Any]:
    return {'verdict': found.get('verdict'), 'when': found.get('when'), **more}


def _attacked(found: dict[str, Any], generator: str) -> dict[str, Any]:
    return _outcome(
        found,
        violated=bool(found.get('violations')),
        current=found.get('generator') == generator,
    )
