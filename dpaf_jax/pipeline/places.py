"""Where a run may write: never into what is handed out, nor among the pictures."""

import os
import pathlib

from dpaf_jax.config import Config
from dpaf_jax.release.bundle import GENERATOR
from dpaf_jax.runtime.command import is_console
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.workdir import Workdir

SHAREABLE = 'release', 'samples'  # folders of a run
ELSEWHERE = 'Give a folder elsewhere'


def check_places(config: Config, workdir: Workdir) -> None:
    """Refuses folders that a run must not write to, before anything is written.

    Raises:
        UserError: naming --workdir (--out), or `config.data.cache`.
    """
    own = '--out' if is_console() else '--workdir'
    _check_root(own, workdir)
    cache = workdir.decoded(config.data.cache)
    for name, folder in ((own, workdir.root), ('config.data.cache', cache)):
        _refuse_among_pictures(name, folder, config.data.source)
        _refuse_shareable(name, folder)


def _check_root(name: str, workdir: Workdir) -> None:
    root, release = workdir.root, workdir.release
    if root.resolve() == pathlib.Path(root.resolve().anchor):
        raise UserError(name, f'is {root}, the whole disk', 'Give a folder of its own')
    if release.exists() and not _is_release(release) and not _is_run(root):
        problem = (
            f'{root} is no run, but has a folder {release.name}/ of something else'
        )
        raise UserError(name, problem, 'Give a new folder')


def _refuse_among_pictures(name: str, folder: pathlib.Path, source: str) -> None:
    """What a run writes among the pictures would be a class of its own."""
    kind, _, path = source.partition(':')
    if kind != 'folder':
        return
    pictures = pathlib.Path(path).expanduser().resolve()
    if folder.resolve().is_relative_to(pictures):
        problem = f'{folder} lies within the pictures, {pictures}'
        raise UserError(name, problem, ELSEWHERE)


def _refuse_shareable(name: str, folder: pathlib.Path) -> None:
    """Private images and entropy must not lie where a user hands out all there is."""
    as_given = pathlib.Path(os.path.abspath(folder))  # a link may lead out of a run
    for path in (as_given, folder.resolve()):
        for above in (path, *path.parents):
            of_run = above.name in SHAREABLE and _is_run(above.parent)
            if of_run or _is_release(above):
                where = 'is' if above == path else f'lies within {above},'
                problem = f'{folder} {where} a folder to hand out'
                raise UserError(name, problem, ELSEWHERE)


def _is_run(folder: pathlib.Path) -> bool:
    return (folder / 'plan.json').exists() or (folder / 'private').is_dir()


def _is_release(folder: pathlib.Path) -> bool:
    return (folder / GENERATOR).exists() and (folder / 'privacy.json').exists()
