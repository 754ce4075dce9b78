"""The one exception for what a user can mend: bad config, data, checkpoint or device."""


class UserError(Exception):
    """Stops a run before work starts; says what is wrong, its value and the remedy.

    Args:
        where: the config field or the file at fault.
        problem: what is wrong with it, with the value found.
        remedy: what to do about it.
    """

    def __init__(self, where: str, problem: str, remedy: str):
        super().__init__(f'{where}: {problem}. {remedy}.')
        self.where, self.problem, self.remedy = where, problem, remedy


class InUseError(UserError):
    """Another run still holds what this one needs: the same command may work later."""
