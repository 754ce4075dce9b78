"""What shapes a run: same fingerprint, same keys, and on CPU the same bits."""

import functools
import hashlib
import importlib.metadata
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from dpaf_jax.config import Config, sections_of, to_dict
from dpaf_jax.data import Manifest
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.runtime import gpu_compiler, machine, processes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json

SECTIONS = ('method', 'data', 'privacy', 'networks')
ENTROPY = 'entropy hash'
PRIVATE = ('data checksum', ENTROPY)  # components that no message may quote
MACHINE = (
    'backend',
    'device kind',
    'device count',
    'process count',
    'processor',
    'cores',
    'long sum',
    'linear algebra',
    'driver',
    'quick compilation',
)
# Rooms that no training imports (tests/test_house.py): a run goes on though they change.
APART = ('attack', 'audit', 'tables', 'verify', 'cli.py', 'evaluate.py', 'sample.py')
LIBRARIES = (
    'jax',
    'jaxlib',
    'flax',
    'optax',
    'numpy',
    'scipy',  # JAX takes LAPACK from it on CPU
    'opt_einsum',  # orders the products of an einsum
    'dp-accounting',
)


def trained_with(config: Config) -> dict[str, Any]:
    """The config's fields that shape what is trained, flat: {'privacy.epsilon': 10.0}."""
    fields = to_dict(config)
    sections = {name: fields[name] for name in (*SECTIONS, *sections_of(config.method))}
    del sections['data']['cache']
    return _flatten(json.loads(json.dumps(sections)), '')


def started_with(fingerprint: pathlib.Path, release: pathlib.Path) -> dict[str, Any]:
    """What is left of `trained_with` where the workdir's config.json is gone.

    Of the fingerprint that training has noted; else of a release, which says nothing of the
    data's fields here; {} where there is neither.
    """
    if noted := read_json(fingerprint):
        of_config = ((n.partition('config.'), v) for n, v in noted.items())
        return {name: v for (before, _, name), v in of_config if name and not before}
    fields = released(release)
    return {n: v for n, v in fields.items() if not n.startswith('data.')}


def released(release: pathlib.Path) -> dict[str, Any]:
    """The fields of a release's config, flat; {} where there is none."""
    return _flatten(read_json(release / 'config.json') or {}, '')


def _flatten(fields: Any, path: str) -> dict[str, Any]:
    if not isinstance(fields, dict):
        return {path: fields}
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flatten(value, f'{path}.{name}' if path else name)
    return flat


def components(
    config: Config,
    plan: PrivacyPlan,
    manifest: Manifest,
    devices: Sequence[jax.Device],
    entropy: bytes,
    public: Manifest | None = None,
) -> dict[str, Any]:
    """Everything that a resumed run must find unchanged: what shapes the bits of a step.

    A step that is computed again has the same key, so it must have the same integers
    before the noise. Those depend on the config, the data, the code and the libraries,
    and by rounding on the machine and on how XLA is told to use it.

    Private: it contains the checksum of the data. It stays in the private run folder.
    """
    on_cpu = devices[0].platform == 'cpu'
    return {
        **{f'config.{name}': value for name, value in trained_with(config).items()},
        'plan': digest(plan.to_json()),
        'data checksum': manifest.checksum,
        **({'public data checksum': public.checksum} if public else {}),
        ENTROPY: hashlib.sha256(entropy).hexdigest(),
        **software(),
        'backend': devices[0].platform,
        'device kind': devices[0].device_kind,
        'device count': len(devices),
        'process count': processes.count(),
        'processor': machine.processor(),
        'cores': machine.cores() if on_cpu else 'any',
        'long sum': machine.long_sum() if on_cpu else 'any',
        'linear algebra': machine.linear_algebra(),
        'driver': machine.driver(devices[0]),
        'quick compilation': 'any' if on_cpu else gpu_compiler.is_quick(),
        **machine.settings(),
    }


def software() -> dict[str, str]:
    """The package's code and the libraries that plan and train."""
    return {'dpaf_jax code': AS_IMPORTED, **_versions()}


@functools.cache
def _versions() -> dict[str, str]:
    """Of what this process imports."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def veiled(parts: Mapping[str, Any], entropy: bytes) -> dict[str, Any]:
    """`parts` as another process may see them: private ones only as equal or not."""
    hidden = {
        n: hashlib.sha256(entropy + str(parts[n]).encode()).hexdigest() for n in PRIVATE
    }
    return {**parts, **hidden}


def code_hash() -> str:
    """SHA-256 over the package's sources, as they lie there, without those `APART`."""
    root = pathlib.Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob('*.py')):
        if path.relative_to(root).parts[0] in APART:
            continue
        digest.update(str(path.relative_to(root)).encode() + b'\0' + path.read_bytes())
    return digest.hexdigest()


AS_IMPORTED = code_hash()


def require_code() -> None:
    """Refuses to train by code that is not what will be noted of the run.

    Sources change under a process that stays, such as a notebook's: it goes on with what it
    has imported, or reloads parts. Either way a step that is computed again, by a process
    that calls itself the same, could have other integers under the same noise.

    Raises:
        UserError: a source has changed since this module was imported.
    """
    if code_hash() != AS_IMPORTED:
        where = str(pathlib.Path(__file__).parents[1])
        problem = 'has changed since this process imported it'
        raise UserError(where, problem, 'Start a new process, or restart the notebook')


def digest(parts: Mapping[str, Any]) -> str:
    """The fingerprint itself: SHA-256 of named parts, whatever their order."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Names what differs, with both values unless they are private; '' if nothing does."""
    names = [n for n in sorted({*before, *now}) if before.get(n) != now.get(n)]
    if 'method' in names:  # whose fields are others
        names = ['method']
    return ', '.join(
        n if n in PRIVATE else f'{n} (was {before.get(n)!r}, now {now.get(n)!r})'
        for n in names
    )
