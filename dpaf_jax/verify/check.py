"""The result of one check."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the verifier's output.

    Attributes:
        name: what was looked at.
        passed: None for a remark that decides nothing.
        detail: the numbers, or what is wrong.
    """

    name: str
    passed: bool | None
    detail: str

    def __str__(self) -> str:
        word = {True: 'pass', False: 'FAIL', None: 'note'}[self.passed]
        return f'{word}  {self.name:<22}  {self.detail}'
