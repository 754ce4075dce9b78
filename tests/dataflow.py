"""What private records reach: a whole training, traced and never computed.

`parallel.pmapped` is replaced, so a program is read instead of compiled. Its inputs are
private or not, and its outputs are private where any operation leads there from a private
input. The sum that noise is added to is taken away (`noise.add`): what is private behind it
has come by another way. Private values are opaque, so a host that looks at one fails.
"""

import contextlib
import dataclasses
import functools
import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from jax.extend import core

from dpaf_jax import methods
from dpaf_jax.privacy import noise
from dpaf_jax.runtime import parallel
from dpaf_jax.training import input_pipeline
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.input_pipeline import Feed
from dpaf_jax.training.run import Run


@dataclasses.dataclass(frozen=True)
class Private:
    """An array that depends on private records; nobody can read it."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def reshape(self, *shape: int) -> 'Private':
        """What the host may do with it: to lay it out otherwise."""
        return _opaque(self._blank.reshape(*shape))

    def __getitem__(self, place: Any) -> 'Private':
        return _opaque(self._blank[place])

    @property
    def _blank(self) -> np.ndarray:
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError('the host has read a private value')


def _opaque(leaf: Any) -> Private:
    return Private(np.shape(leaf), leaf.dtype)


def private(tree: Any) -> Any:
    """The same shapes, opaque."""
    return jax.tree.map(_opaque, tree)


def is_private(tree: Any) -> bool:
    """Whether a leaf depends on private records."""
    return any(isinstance(leaf, Private) for leaf in jax.tree.leaves(tree))


# --- one program ------------------------------------------------------------------------


def reached(jaxpr: Any, ins: Sequence[bool]) -> list[bool]:
    """Which outputs of a jaxpr depend on inputs that are private."""
    known = dict(zip(jaxpr.invars, ins, strict=True))

    def of(variables: Sequence[Any]) -> list[bool]:
        return [
            not isinstance(v, core.Literal) and known.get(v, False) for v in variables
        ]

    for equation in jaxpr.eqns:
        outs = _through(equation, of(equation.invars))
        known.update(zip(equation.outvars, outs, strict=True))
    return of(jaxpr.outvars)


def _through(equation: Any, ins: list[bool]) -> list[bool]:
    name, params = equation.primitive.name, equation.params
    if not any(ins):
        return [False] * len(equation.outvars)
    is_told = equation.effects or name == 'pure_callback'
    assert not is_told, f'{name} hands a private value to the host'
    if name == 'scan':
        return _scan(params, ins)
    if name == 'while':
        return _while(params, ins)
    if name == 'cond':
        outs = [reached(branch.jaxpr, ins[1:]) for branch in params['branches']]
        return [ins[0] or any(each) for each in zip(*outs, strict=True)]
    inner = [getattr(p, 'jaxpr', p) for p in params.values()]
    called = [p for p in inner if hasattr(p, 'eqns') and len(p.invars) == len(ins)]
    if len(called) == 1 and len(called[0].outvars) == len(equation.outvars):
        return reached(called[0], ins)
    return [True] * len(equation.outvars)


def _scan(params: Any, ins: list[bool]) -> list[bool]:
    consts, carried = params['num_consts'], params['num_carry']
    ins = list(ins)
    while True:
        outs = reached(params['jaxpr'].jaxpr, ins)
        carry = ins[consts : consts + carried]
        wider = [a or b for a, b in zip(carry, outs[:carried], strict=True)]
        if wider == carry:
            return [*carry, *outs[carried:]]
        ins[consts : consts + carried] = wider


def _while(params: Any, ins: list[bool]) -> list[bool]:
    of_cond, of_body = params['cond_nconsts'], params['body_nconsts']
    for_cond, for_body = ins[:of_cond], ins[of_cond : of_cond + of_body]
    carry = ins[of_cond + of_body :]
    while True:
        outs = reached(params['body_jaxpr'].jaxpr, [*for_body, *carry])
        (again,) = reached(params['cond_jaxpr'].jaxpr, [*for_cond, *carry])
        wider = [again or a or b for a, b in zip(carry, outs, strict=True)]
        if wider == carry:
            return carry
        carry = wider


def _traced(
    calls: list[str], fn: Callable[..., Any], *_: Any, **__: Any
) -> Callable[..., Any]:
    """Instead of `parallel.pmapped`: outputs of the right shapes, private or zero.

    Each call is noted: the program, and what it gets that is not private.
    """
    known: dict[Any, Any] = {}
    traced: dict[Any, Any] = {}

    def program(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        ins = tuple(isinstance(leaf, Private) for leaf in leaves)
        shapes = tuple((np.shape(leaf), np.dtype(leaf.dtype)) for leaf in leaves)
        if (structure, ins, shapes) not in known:
            if (structure, shapes) not in traced:
                closed, made = _program(fn, args)
                traced[structure, shapes] = closed, made, _fingerprint(closed)
            closed, made, text = traced[structure, shapes]
            known[structure, ins, shapes] = _outputs(closed, made, ins), text
        outputs, text = known[structure, ins, shapes]
        public = [leaf for leaf in leaves if not isinstance(leaf, Private)]
        calls.append(_digest([text, *(np.asarray(leaf).tobytes() for leaf in public)]))
        return outputs

    return program


def _program(fn: Callable[..., Any], args: Any) -> tuple[Any, Any]:
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), args)
    on_axis = jax.vmap(fn, axis_name=parallel.AXIS)
    return jax.make_jaxpr(on_axis, return_shape=True)(*specs)


def _fingerprint(closed: Any) -> bytes:
    """Of a program and its constants; functions are told by an address, which is left out."""
    text = re.sub(r'0x[0-9a-f]+', '', str(closed)).encode()
    return _digest([text, *(np.asarray(c).tobytes() for c in closed.consts)]).encode()


def _digest(parts: Sequence[bytes]) -> str:
    return hashlib.sha256(b'|'.join(parts)).hexdigest()


def _outputs(closed: Any, shapes: Any, ins: Sequence[bool]) -> Any:
    leaves, structure = jax.tree.flatten(shapes)
    outs = reached(closed.jaxpr, ins)
    made = [
        Private(leaf.shape, leaf.dtype) if out else np.zeros(leaf.shape, leaf.dtype)
        for leaf, out in zip(leaves, outs, strict=True)
    ]
    return jax.tree.unflatten(structure, made)


# --- a whole training -------------------------------------------------------------------


def _replicate(tree: Any, devices: Any) -> Any:
    del devices

    def place(leaf: Any) -> Any:
        if isinstance(leaf, Private):
            return Private((1, *leaf.shape), leaf.dtype)
        return np.asarray(leaf)[None]

    return jax.tree.map(place, tree)


def _unreplicate(tree: Any) -> Any:
    def take(leaf: Any) -> Any:
        if isinstance(leaf, Private):
            return Private(leaf.shape[1:], leaf.dtype)
        return np.asarray(leaf)[0]

    return jax.tree.map(take, tree)


def _first_state(run: Run, init: Callable[..., Any], purpose: str, *args: Any) -> Any:
    del run, purpose
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), args)
    made = jax.eval_shape(init, jax.random.key(0, impl='rbg'), *specs)
    made = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), made)
    return private(made) if is_private(args) else made


def _train(told: list[Any], run: Run, phase: Any) -> Any:
    state, step = _replicate(phase.init(), run.devices), 0
    while step < phase.total_steps:
        state, step, metrics = phase.window(state, step)
        assert not is_private(metrics), f'{phase.name} tells what was not noised'
        told.append(jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), metrics))
        phase.picture(state)
    return _unreplicate(state)


def _picture(run: Run, params: Any, sampler: Any = None) -> None:
    assert not is_private(params), 'a picture is of what was not noised'


def _every_record(
    run: Run, present: Any = None, real: Any = input_pipeline.every_record
) -> Iterator[ClipBatch]:
    for chunk in real(run, present):
        yield private(chunk)


class PrivateFeed(Feed):
    """What a step reads of the data, opaque."""

    def __init__(self, run: Run, features: Any = None, params: Any = None):
        super().__init__(run)
        self.data = private(self.data)
        if features:
            one = jax.eval_shape(features, params, run.data.images[:1])
            rows = run.data.manifest.num_examples
            shape = (1, rows, *one.shape[1:])
            self.data['images'] = Private(shape, one.dtype)

    def deal(self, draws: Any) -> Any:
        return private(super().deal(draws))

    def deal_one(self, draw: Any, **numbers: Any) -> Any:
        return private(super().deal_one(draw, **numbers))


class Found(NamedTuple):
    """What a training gives.

    Attributes:
        params: of the release, `Private` where a record reaches them without noise.
        noise_stds: of all noise that was added, where a program knows it as a number.
        calls: a digest of each program that ran, with all that it got but private arrays.
        told: the metrics of each window.
    """

    params: Any
    noise_stds: set[float]
    calls: list[str]
    told: list[Any]


def trained(run: Run, *, erased: bool = True) -> Found:
    """Traces the training of a run on one device.

    Args:
        run: of any method.
        erased: whether what noise is added to is taken away; else everything learnt is
            private, which shows that records reach it at all.

    Raises:
        AssertionError: a metric, a picture or the host sees what was not noised.
    """
    noise_stds, make_noise = set(), noise._noise
    calls: list[str] = []
    told: list[Any] = []

    def noted(sums: Any, key_data: Any, noise_std: Any, *place: Any) -> Any:
        if not isinstance(noise_std, jax.Array):
            noise_stds.add(float(noise_std))
        return make_noise(sums, key_data, noise_std, *place)

    patches = [
        mock.patch.object(parallel, 'pmapped', functools.partial(_traced, calls)),
        mock.patch.object(parallel, 'replicate', _replicate),
        mock.patch.object(parallel, 'unreplicate', _unreplicate),
        mock.patch.object(noise, '_noise', noted),
        mock.patch.object(Run, 'train', lambda run, phase: _train(told, run, phase)),
        mock.patch.object(Run, 'first_state', _first_state),
        mock.patch.object(Run, 'picture', _picture),
        *_everywhere('Feed', PrivateFeed, Feed),
        *_everywhere('every_record', _every_record, input_pipeline.every_record),
    ]
    if erased:
        patches.append(mock.patch.object(noise, 'add', lambda sums, made: made))
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        return Found(methods.train(run), noise_stds, calls, told)


def _everywhere(name: str, new: Any, old: Any) -> list[Any]:
    """Patches of a name in every module of the package that has imported it."""
    return [
        mock.patch.object(module, name, new)
        for path, module in list(sys.modules.items())
        if path.startswith('dpaf_jax') and getattr(module, name, None) is old
    ]
