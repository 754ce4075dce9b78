"""How far G-PATE's teachers agree, exactly: a diagnostic for a run's `nonprivate/` alone.

Rows of `nonprivate/agreement/history.jsonl`, one for each step. Nothing in them is covered
by the run's epsilon.
"""

import pathlib

import numpy as np

from dpaf_jax.methods.g_pate import data_dependent
from dpaf_jax.training.history import History
from dpaf_jax.training.workdir import Workdir

NOTE = 'NOT PRIVATE; epsilon_data_dependent is no guarantee of the release'


class Agreement:
    """Writes the rows of a phase.

    Args:
        workdir: of the run.
        phase: its name.
        sigma2: noise of the bins; 0 for a run without privacy, which has no epsilon.
        check: (threshold in votes, sigma1), or None; see `data_dependent`.
        delta: of the run.
    """

    def __init__(
        self,
        workdir: pathlib.Path,
        phase: str,
        sigma2: float,
        check: tuple[float, float] | None,
        delta: float,
    ):
        folder = Workdir(workdir).make_nonprivate() / 'agreement'
        folder.mkdir(exist_ok=True)
        self._history = History(folder)
        self._phase, self._delta = phase, delta
        self._sigma2, self._check = sigma2, check
        self._spent: np.ndarray | None = None  # as the last row has it

    def note(self, step: int, histograms: np.ndarray, passed: np.ndarray) -> None:
        """Adds the row of a step; later rows of an earlier attempt are forgotten.

        Args:
            step: how many were done before it.
            histograms: [m, k, B] exact votes.
            passed: [m, k] bool, whether the noisy check let a query through.
        """
        shares = np.sort(histograms, axis=-1) / np.sum(histograms, axis=-1)[..., None]
        first, second = shares.mean(axis=(0, 1))[:-3:-1]
        row = {'nonprivate_first': float(first), 'nonprivate_second': float(second)}
        if self._spent is None:
            self._spent = self._resumed(step)
        if self._sigma2:
            self._spent = self._spent + data_dependent.renyi_of_queries(
                histograms, passed, self._sigma2, self._check
            )
            so_far = data_dependent.epsilon(self._spent, self._delta)
            row['nonprivate_epsilon_data_dependent'] = so_far
        self._history.append(
            {
                'phase': self._phase,
                'step': step + 1,
                **row,
                'nonprivate_renyi': self._spent.tolist(),
                'note': NOTE,
            }
        )

    def _resumed(self, step: int) -> np.ndarray:
        """What the steps before cost: a resumed run does later ones again."""
        self._history.truncate(self._phase, step)
        rows = self._history.rows()
        nothing = np.zeros(len(data_dependent.ORDERS))
        return np.array(rows[-1]['nonprivate_renyi']) if rows else nothing
