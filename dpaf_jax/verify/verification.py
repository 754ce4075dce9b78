"""Checks of a release by its folder alone: its arithmetic and its contents.

Not its execution: that training drew, clipped and noised as the plan says leaves no
trace in a release. The code and its tests answer for that, and whoever ran it.
"""

import dataclasses
import os
import pathlib
from typing import Any

from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import CARD, CONFIG, GENERATOR, PICTURE, PRIVACY, checksum
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import write_json
from dpaf_jax.runtime.text import now
from dpaf_jax.verify import contents
from dpaf_jax.verify.check import Check
from dpaf_jax.verify.statement import check_statement

__all__ = ['Check', 'Verification', 'record', 'verify']
OUTCOME = 'verification.json'  # in the folder of a run
CAVEAT = (
    'Checked: arithmetic and contents. Not checked: the execution, that is, whether '
    'training drew, clipped and noised as the plan says.'
)


@dataclasses.dataclass(frozen=True)
class Verification:
    """What was found in a release.

    Attributes:
        checks: in order; those that need a file that cannot be read are left out, and
            that file's own check has failed.
        privacy: the content of privacy.json; None where it cannot be read.
    """

    checks: list[Check]
    privacy: Any

    @property
    def passed(self) -> bool:
        """Whether no check has failed."""
        return all(check.passed is not False for check in self.checks)

    def verdict(self) -> str:
        """What all checks together say, in one line."""
        if not self.passed:
            failed = [check.name for check in self.checks if check.passed is False]
            return f'REJECTED: {", ".join(failed)}'
        guarantee = self.privacy['guarantee']
        if guarantee != CERTIFIED:
            text = f'consistent, but NOTHING IS CERTIFIED: {guarantee}'
        else:
            text = (
                f'consistent: epsilon = {self.privacy["epsilon"]} at delta = '
                f'{self.privacy["delta"]:g} follows from the plan, the plan from the config '
                f"for N = {self.privacy['num_examples']}, by the owner's word"
            )
        return f'{text}.'


def holds_release(directory: pathlib.Path) -> bool:
    """Whether there is anything to check: a generator, or what is stated of one."""
    return any(os.path.lexists(directory / name) for name in (GENERATOR, PRIVACY))


def record(directory: pathlib.Path, found: Verification) -> pathlib.Path | None:
    """Leaves the outcome in a run's folder, for its report; does nothing elsewhere.

    Args:
        directory: of the release.
        found: in it, as it is now.

    Returns:
        The file; None where the release does not lie in the folder of a run.
    """
    run = directory.resolve().parent
    if not (run / 'stages.json').is_file():
        return None
    outcome = {
        'verdict': found.verdict(),
        'when': now(),
        'passed': found.passed,
        'release': checksum(directory),
    }
    write_json(run / OUTCOME, outcome)
    return run / OUTCOME


def verify(directory: str | os.PathLike[str]) -> Verification:
    """Runs every check that the folder's content allows.

    Args:
        directory: of the release.

    Raises:
        UserError: there is no such folder.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        raise UserError(str(directory), 'is no folder', 'Give the folder of a release')
    checks = [contents.check_files(directory)]
    if contents.has_no_end(directory):  # nothing more is read
        return Verification(checks, None)
    config, made = contents.check_config(directory / CONFIG)
    checks.append(made)
    if config is None:
        return Verification(checks, None)
    checks.append(contents.check_generator(directory / GENERATOR, config))
    checks += contents.check_picture(directory / PICTURE, config)
    try:
        stated = contents.read_json(directory / PRIVACY)
    except (OSError, ValueError) as error:
        failed = Check(PRIVACY, False, contents.told(error))
        return Verification([*checks, failed], None)
    try:
        card = (directory / CARD).read_bytes().decode()
    except (OSError, ValueError) as error:
        return Verification([*checks, Check(CARD, False, contents.told(error))], stated)
    return Verification([*checks, *check_statement(stated, card, config)], stated)
