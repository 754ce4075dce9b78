"""Releases with untrained generators, for tests of what a release may contain."""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
from typing import Any

import jax
import tiny
import tiny_runs

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.plan import plan as _plan
from dpaf_jax.privacy.plan import FIXED_ENTROPY, PrivacyPlan
from dpaf_jax.release.bundle import canonical_json, write_release
from dpaf_jax.release.samplers.registry import make_sampler
from dpaf_jax.verify import __main__ as command
from dpaf_jax.verify import statement
from dpaf_jax.verify.verification import verify

SETTINGS = {
    'mixed': {'privacy__epsilon': 0.1, 'privacy__budgets': '30%,rest,30%'},
    'one shot': {'privacy__epsilon': 1.0, **tiny.ONE_SHOT},
    'no noise': {'privacy__epsilon': math.inf},
    'as published': {'privacy__guarantee': 'as_published', 'privacy__epsilon': 100.0},
    'fixed entropy': {'privacy__epsilon': 1.0, **tiny.ONE_SHOT},
}
CERTIFIED = ('mixed', 'one shot')
NUMBER = tiny.NUM_EXAMPLES


@functools.cache
def plan_once(config: Config, num_examples: int) -> PrivacyPlan:
    """Of `methods.dpaf`, to every digit: also where the module that asks counts coarsely."""

    def make(folder: pathlib.Path) -> PrivacyPlan:
        with tiny_runs.fine_accounting():
            return _plan(config, num_examples)

    asked = hashlib.sha256(f'{config} {num_examples}'.encode()).hexdigest()
    return tiny_runs.once(f'plan {asked}', make)[1]


@functools.cache
def _epsilons(stated: str) -> statement.Epsilons:
    return statement.recompute(json.loads(stated))


def epsilons_once(stated: dict[str, Any]) -> statement.Epsilons:
    """`recompute`, once for each privacy.json."""
    return _epsilons(json.dumps(stated))


def write(kind: str, folder: pathlib.Path) -> pathlib.Path:
    """A release with an untrained generator; its plan is the real one."""
    plan = plan_once(tiny.config(**SETTINGS[kind]), NUMBER)
    if kind == 'fixed entropy':
        plan = dataclasses.replace(plan, guarantee=FIXED_ENTROPY)
    return write_config(tiny.config(**SETTINGS[kind]), folder, plan)


def write_config(
    config: Config, folder: pathlib.Path, plan: PrivacyPlan | None = None
) -> pathlib.Path:
    """A release of this config with an untrained generator; by default the plan of another."""
    plan = plan or plan_once(tiny.config(**SETTINGS['no noise']), NUMBER)
    params = jax.jit(make_sampler(config).init)(jax.random.key(0))
    write_release(folder, config, plan, params)
    return folder


def call(folder, *more):
    return tiny_runs.call(command.run, 'dpaf_jax.verify', f'--release={folder}', *more)


def failed(folder) -> set[str]:
    return {check.name for check in verify(folder).checks if check.passed is False}


def privacy_of(folder) -> dict:
    return json.loads((folder / 'privacy.json').read_text())


def rewrite(path, change):
    """As the package would have written it: only what it says is another thing."""
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(canonical_json(fields))
