"""What a config leaves to the data: decided once, said aloud, and kept.

A field that is 0, or '?', takes what `data.survey` proposes. From then on it is public like
any other: it stands in the release's config and in its plan. Whoever may not publish one of
them states another.
"""

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from dpaf_jax.config import Config, sections_of, undecided
from dpaf_jax.config.data import check_source
from dpaf_jax.config.reading import check
from dpaf_jax.data import read_manifest
from dpaf_jax.data.survey import delta_of, proposed, survey, table
from dpaf_jax.pipeline.places import check_places
from dpaf_jax.pipeline.seen import check_seen
from dpaf_jax.runtime import processes
from dpaf_jax.runtime.files import read_json
from dpaf_jax.training import fingerprint
from dpaf_jax.training.workdir import Workdir

HEAD = 'Decided from the data, public with the release; state another to change one:'
HEAD_BY_N = 'Decided from the public N; state another to change it:'
ONE_CLASS = (
    'One class: no labeller is learnt, and all of epsilon is for what images look like.'
)
Decided = dict[str, Any]  # {'data.channels': 3}


def decided(config: Config, workdir: Workdir) -> Config:
    """The config of a run without open fields: after a look, or as its images were prepared.

    Says what was decided, and keeps what was seen in the folder's private part, where it
    is not printed on a terminal. All processes call this; the first one looks.

    Raises:
        UserError: the source is missing or malformed, or the whole does not fit.
    """
    check_source(config.data)
    check_places(config, workdir)
    values: Decided = {}
    if undecided(config):
        values = processes.from_first(lambda: _begun_or_seen(config, workdir))
    made = filled(config, values)
    if made.dpaf != config.dpaf and processes.is_first():
        print(ONE_CLASS, flush=True)
    return made


def _begun_or_seen(config: Config, workdir: Workdir) -> Decided:
    before = (read_json(workdir.config) or {}).get('config')
    if before and (_has_begun(workdir) or _was_prepared(before, config, workdir)):
        return before
    if not before and (released := fingerprint.released(workdir.release)):
        return released  # the pictures may be gone
    values, seen, told = look(config)
    if seen and sys.stdout.isatty():
        print(seen)
    elif seen:  # a log is not for the owner's eyes alone
        filled(config, values)  # or nothing is written
        print(f'What was seen is private: {workdir.keep_survey(seen)}')
    print(told, flush=True)
    return values


def _has_begun(workdir: Workdir) -> bool:
    """Whether keys were taken: then another config is refused, by name of what differs."""
    return workdir.fingerprint.exists() or workdir.release.exists()


def _was_prepared(before: Decided, config: Config, workdir: Workdir) -> bool:
    """Whether the images are decoded that a config with open fields asks for.

    As long as they are not, the folder may have changed since it was planned for.
    """
    if read_manifest(workdir.decoded(config.data.cache)) is None:
        return False
    now, open_fields = fingerprint.trained_with(config), undecided(config)
    return all(
        before.get(name) == value
        for name, value in now.items()
        if name.startswith('data.') and name not in open_fields
    )


class Look(NamedTuple):
    """What a look at the data gave.

    Attributes:
        decided: what follows for the open fields; public with the release.
        seen: the survey as lines; private. '' where nobody had to look.
        told: what was decided, as lines.
    """

    decided: Decided
    seen: str
    told: str


def look(config: Config) -> Look:
    """Looks at the data of a config with open fields.

    Raises:
        UserError: the source is missing or malformed, or does not fit what is stated.
    """
    names, number = undecided(config), config.data.num_examples
    values, seen, head = {}, '', HEAD_BY_N
    if names != ['privacy.delta'] or not number:
        found = survey(config.data)
        check_seen(found, config.data)
        values, seen, head = proposed(found), table(found), HEAD
    if number:
        values['delta'] = delta_of(number)
    made = {name: values[name.partition('.')[2]] for name in names}
    lines = [f'  --config.{name}={shlex.quote(str(v))}' for name, v in made.items()]
    return Look(made, seen, '\n'.join([head, *lines]))


def filled(config: Config, decided: Mapping[str, Any]) -> Config:
    """The config with its open fields filled, and checked as a whole.

    Where all images are of one class there is nothing to label: a labeller would take most
    of epsilon and know nothing.

    Raises:
        UserError: the whole does not fit.
    """
    sections: dict[str, dict[str, Any]] = {'data': {}, 'privacy': {}}
    for path in undecided(config):
        section, _, name = path.partition('.')
        sections[section][name] = decided[path]
    made = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, **sections['data']),
        privacy=dataclasses.replace(config.privacy, **sections['privacy']),
    )
    if made.data.num_classes == 1 and 'dpaf' in sections_of(made.method):
        made = dataclasses.replace(made, dpaf=made.dpaf.without_labeller)
    check(made)
    return made
