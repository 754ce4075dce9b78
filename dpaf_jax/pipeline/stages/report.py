"""The run's own report, from what all stages have left; it never enters the release."""

from typing import Any

from dpaf_jax.config import public_dict
from dpaf_jax.pipeline import checks, report
from dpaf_jax.pipeline.stages.evaluate import asked, is_of_samples
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.release import pictures
from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.export import read_npz
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json
from dpaf_jax.training.history import History


def run(job: Job) -> dict[str, Any]:
    """Writes the report of what is there; returns the content of report.json."""
    workdir = job.workdir
    job.require(workdir.release, 'release')
    privacy, grid = load_release(workdir.release).privacy, None
    if workdir.samples.exists():
        images, labels = read_npz(workdir.samples)
        grid = pictures.sample_grid(images, labels, job.config.data.num_classes)
    evaluated = read_json(workdir.evaluation) or {}
    if evaluated and evaluated['config'] != asked(job.config):
        raise UserError(
            str(workdir.evaluation),
            'is of other settings than are asked for now',
            'Give the fields of config.evaluation and config.samples that it was made '
            'with, or run --stage=evaluate again',
        )
    if not is_of_samples(evaluated, workdir):
        problem = f'is of other samples than {workdir.samples}'
        raise UserError(str(workdir.evaluation), problem, 'Run --stage=evaluate again')
    found = {
        'privacy': privacy,
        'accuracy': evaluated.get('accuracy', {}),
        'fidelity': evaluated.get('fidelity', {}),
        'floor': evaluated.get('floor'),
        'ceiling': _ceiling(job, evaluated),
        'checked': checks.outcomes(workdir, privacy),
        'wall_seconds': workdir.wall_seconds(),
        'environment': report.environment(),
        'config': public_dict(job.config),
        'history': History(workdir.root).rows(),
    }
    return report.write_report(workdir.root, found, grid)


def _ceiling(job: Job, evaluated: dict[str, Any]) -> dict[str, Any]:
    """What real images teach, where the evaluation that is reported asked for it."""
    asked = evaluated.get('config', {}).get('evaluation', {})
    if not asked.get('train_on_real'):
        return {}
    found = read_json(job.workdir.nonprivate / 'evaluation.json') or {}
    return found.get('real', {})
