"""Compiled programs that stay between runs: JAX's persistent compilation cache.

A program holds code and shapes, never data. JAX finds it again by what was to be compiled, the
versions, backend and flags. Two things that shape a program's bits on a CPU are not in that
key: the number of cores that it was compiled for, and variables of libraries. A run that
began with a program of another machine and went on with its own would round otherwise under
the same noise, unnoticed by the fingerprint. So each kind of machine has a folder of its own.

Whoever may write the folder decides what runs. It is made for its owner alone.
"""

import logging
import os
import pathlib

import jax

from dpaf_jax.runtime import machine

DIRECTORY, ENABLED = 'jax_compilation_cache_dir', 'jax_enable_compilation_cache'
LEAST = 'jax_persistent_cache_min_compile_time_secs'
LEAST_SECONDS = 0.2  # to compile; reading costs less from there on


def default_directory() -> pathlib.Path:
    """Of this kind of machine, in the user's cache folder."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    return pathlib.Path(cache) / 'dpaf_jax' / 'xla' / machine.kind()


def keep_programs() -> None:
    """Turns the cache on, unless JAX's own variables move it or turn it off.

    JAX_COMPILATION_CACHE_DIR names another folder, for machines that are alike; empty, or
    with JAX_ENABLE_COMPILATION_CACHE=false, nothing is kept. A folder that cannot be written
    costs the time to compile and nothing else.
    """
    # JAX reads its environment when it is imported, which may have been long ago.
    if LEAST.upper() not in os.environ:
        jax.config.update(LEAST, LEAST_SECONDS)
    moved = os.environ.get(DIRECTORY.upper())
    directory = str(default_directory()) if moved is None else moved
    if not directory or not getattr(jax.config, ENABLED):
        jax.config.update(DIRECTORY, None)
        return
    if problem := _problem(directory, is_own=moved is None):
        jax.config.update(DIRECTORY, None)
        logging.warning(
            'Compiled programs are not kept: %s: %s. %s names another folder',
            directory,
            problem,
            DIRECTORY.upper(),
        )
        return
    jax.config.update(DIRECTORY, directory)


def described() -> str:
    """Where compiled programs are kept, for the log of a training."""
    directory = getattr(jax.config, DIRECTORY)
    if not directory or not getattr(jax.config, ENABLED):
        return 'Compiled programs are not kept'
    return (
        f'Compiled programs are kept in {directory} ({DIRECTORY.upper()} names another '
        f'folder, {ENABLED.upper()}=false turns it off)'
    )


def _problem(directory: str, *, is_own: bool) -> str:
    """Why programs cannot be kept there; '' if they can.

    Args:
        directory: asked for.
        is_own: the default one, which nobody else has to do with.
    """
    if '://' in directory:  # storage that JAX reaches by itself
        return ''
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        found = os.stat(directory)
    except OSError as error:
        return error.strerror or str(error)
    if is_own and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        return 'others may write there'
    return '' if os.access(directory, os.W_OK | os.X_OK) else 'cannot be written'
