"""The console command `dpaf-jax`: every command, by a word and what it is about.

It turns `dpaf-jax synthesize pictures --epsilon 3` into the flags of `dpaf_jax.main`, and so
on. What it does not know itself is a flag of that command.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple, NoReturn

from absl import flags

from dpaf_jax.runtime.command import CONSOLE, fail, fail_with_help, flush
from dpaf_jax.runtime.version import VERSION

RECOMMENDED, PUBLIC = 'configs/recommended.py', 'configs/public.py'
NAMED = ('digits', 'mnist', 'fashion_mnist')  # sources that are no path
Arguments = argparse.Namespace

DESCRIPTION = """\
Makes synthetic labelled images from private ones, with a proven epsilon.

  dpaf-jax synthesize digits --out runs/digits          try it: nothing to download
  dpaf-jax synthesize /path/to/images --epsilon 3 --out runs/mine
  dpaf-jax plan /path/to/images --epsilon 3             what to expect of that
  dpaf-jax verify runs/mine                             check what came out
  dpaf-jax sample runs/mine --num 60000 --out synthetic.npz

/path/to/images holds a sub-folder for each class. runs/mine/release may be shared,
runs/mine/private never.
"""
EPILOG = "Each command has its own help: 'dpaf-jax synthesize --help'."

SYNTHESIZE = """\
Trains a generator under differential privacy and leaves a release.

  dpaf-jax synthesize /path/to/images --epsilon 3 --out runs/mine

SOURCE is one of
  a folder      with a sub-folder for each class (or train/ and test/ with those), or
                pictures and a labels.csv of the columns file,label
  FILE.npz      arrays images, labels (or train_x, train_y, test_x, test_y)
  digits        embedded, to try it
  KIND:PATH     celeba:, ffhq:, tfds: and the like (docs/howto/data.md)

EPSILON is the promise: 1 is strong, 10 is weak. With or without any one picture, every
outcome is equally likely up to a factor of e^EPSILON, but for delta.

The same command again resumes an interrupted run, or says that it is done.
--config.FIELD=VALUE replaces any field: --config.data.image_size=64
--stage=plan stops before training, and prints the noise and what to expect.
"""
PLAN = """\
Prints the noise, how long it takes, and what to expect. No training.

  dpaf-jax plan /path/to/images --epsilon 1

SOURCE and EPSILON are as for 'dpaf-jax synthesize', and so is what else may be given. What is
planned is kept: 'synthesize' with the same words goes on from there.
"""
SAMPLE = """\
Draws a synthetic data set from a release. It needs no private data, and costs no epsilon.

  dpaf-jax sample runs/mine --num 60000 --out synthetic.npz
  dpaf-jax sample runs/mine --num 60000 --out pictures/
"""
EVALUATE = """\
Compares synthetic pictures with real ones: accuracy of classifiers, fidelity.

  dpaf-jax evaluate runs/mine --real /path/to/images
  dpaf-jax evaluate pictures/ --real mnist.npz --out runs/compared

Any pictures will do, ours or not. What it says is not covered by epsilon.
"""
VERIFY = """\
Checks a release by its files alone: epsilon by three accountants, the plan, every file.

  dpaf-jax verify runs/mine

Exit status: 0 if everything fits, 1 if not, 2 if there is no release.
"""
AUDIT = """\
Attacks the mechanisms of a run's config with canaries, to refute its epsilon.

  dpaf-jax audit runs/mine

It reads no private picture. The outcome goes to runs/mine/audit, and into the report when
its stage is run again. Exit status: 1 if a violation was found.
"""
ATTACK = """\
Attacks a run's release, with its real pictures as the yardstick.

  dpaf-jax attack runs/mine --attack membership
  dpaf-jax attack runs/mine --attack memorisation

What it writes shows real pictures: never publish it. Exit status: 1 if it found something,
which may be within what epsilon permits.
"""
TABLES = """\
Fills a paper's table, or one of ours: as printed and as run here, side by side.

  dpaf-jax tables --list
  dpaf-jax tables --table dpaf/1 --scale cpu --data FOLDER --out runs/tables

The same command again goes on where it was stopped. At --scale smoke it is a rehearsal, and
prints no figure. Exit status: 1 if a run failed.
"""


class Command(NamedTuple):
    """One word behind `dpaf-jax`.

    Attributes:
        module: with `run(argv)`.
        text: what its help begins with; the first line stands in the list of commands.
        about: name and meaning of what it is about; None: flags say all.
        translate: from what stood on the command line to flags of the module.
    """

    module: str
    text: str
    about: tuple[str, str] | None
    translate: Callable[[Arguments], list[str]]


def _synthesize(given: Arguments) -> list[str]:
    # Said in any case, and in all digits: a path may end with a comma and a number.
    epsilon = repr(10.0 if given.epsilon is None else given.epsilon).removesuffix('.0')
    source = _source(given.about)
    workdir = given.out or os.path.join('runs', _name(given.about))
    file = PUBLIC if given.public_features else RECOMMENDED
    return [f'--config={file}:{source},{epsilon}', f'--workdir={workdir}']


def _not_empty(text: str) -> str:
    if not text:  # as of --out=$RUN where RUN is not set
        raise argparse.ArgumentTypeError('is empty')
    return text


def _name(about: str) -> str:
    """Of a run on these data: of `.` that of the folder itself."""
    path = about.rpartition(':')[2]
    name = os.path.basename(os.path.abspath(path))
    return os.path.splitext(name)[0] if os.path.isfile(path) else name


def _source(about: str) -> str:
    """`data.source` for what a user calls their data."""
    if about in NAMED:
        if os.path.isdir(about):
            fail(
                f'SOURCE: {about} is a folder here, and a known data set. Write ./{about}'
            )
        return about
    if os.path.isdir(about):
        return f'folder:{about}'
    if about.endswith('.npz') and os.path.isfile(about):
        return f'npz:{about}'
    if ':' not in about:
        fail(f'SOURCE: {about}: no such folder or .npz file. See {CONSOLE} --help')
    return about


def _refuse_twice(command: str, said: Sequence[str], rest: Sequence[str]) -> None:
    """Flags that would take the place of the command's own words without a word.

    Args:
        command: of `COMMANDS`.
        said: flags that its words have become.
        rest: flags as they were given.
    """
    taken = {_flag(argument) for argument in said} - {'out'}  # of audit: a default
    if command in ('synthesize', 'plan'):
        taken |= {'config.data.source', 'config.privacy.epsilon'}
    for argument in rest:
        if argument.startswith('-') and (flag := _flag(argument)) in taken:
            fail(f'--{flag}: is set by {CONSOLE} {command} itself. See its --help')


def _flag(argument: str) -> str:
    return argument.partition('=')[0].lstrip('-')


def _refuse_config(rest: Sequence[str]) -> None:
    """--config, which would take the place of SOURCE without a word."""
    for flag, _, value in (argument.partition('=') for argument in rest):
        if flag in ('--config', '-config'):
            config = value or 'configs/mnist.py'
            fail(
                f'SOURCE and --config exclude each other. For another config: '
                f'python -m dpaf_jax.main --config={config} --workdir=RUN'
            )


def _release(about: str) -> str:
    """The release in a run's folder, or the folder itself."""
    inside = os.path.join(about, 'release')
    return inside if os.path.isdir(inside) else about


COMMANDS = {
    'synthesize': Command(
        'dpaf_jax.main', SYNTHESIZE, ('SOURCE', 'the private pictures'), _synthesize
    ),
    'plan': Command(
        'dpaf_jax.main',
        PLAN,
        ('SOURCE', 'the private pictures'),
        lambda given: [*_synthesize(given), '--stage=plan'],
    ),
    'sample': Command(
        'dpaf_jax.sample',
        SAMPLE,
        ('RUN', "a run's folder, or a release"),
        lambda given: [f'--release={_release(given.about)}'],
    ),
    'evaluate': Command(
        'dpaf_jax.evaluate',
        EVALUATE,
        (
            'SYNTHETIC',
            "a run's folder, a release, a folder of pictures, or an .npz file",
        ),
        lambda given: [f'--synthetic={_release(given.about)}'],
    ),
    'verify': Command(
        'dpaf_jax.verify.__main__',
        VERIFY,
        ('RUN', "a run's folder, or a release"),
        lambda given: [f'--release={_release(given.about)}'],
    ),
    'audit': Command(
        'dpaf_jax.audit.__main__',
        AUDIT,
        ('RUN', "a run's folder"),
        lambda given: [
            f'--release={_release(given.about)}',
            f'--out={os.path.join(given.about, "audit")}',
        ],
    ),
    'attack': Command(
        'dpaf_jax.attack.__main__',
        ATTACK,
        ('RUN', "a run's folder"),
        lambda given: [f'--workdir={given.about}'],
    ),
    'tables': Command('dpaf_jax.tables.__main__', TABLES, None, lambda given: []),
}


class _Parser(argparse.ArgumentParser):
    """Mistakes as all commands tell them; help that ends with the module's own flags."""

    module = ''

    def __init__(self, **settings: Any):
        super().__init__(
            **settings,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # --config is no short form of ours
        )

    def error(self, message: str) -> NoReturn:
        fail_with_help([self.prog], message)

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        super().print_help(file)
        flush()

    def format_help(self) -> str:
        text = super().format_help()
        if self.module:
            importlib.import_module(self.module)
            if more := flags.FLAGS.module_help(self.module):
                text += f'\nfurther flags:\n{more}\n'
        return text


def _parser() -> _Parser:
    parser = _Parser(prog=CONSOLE, description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument('--version', action='version', version=f'dpaf_jax {VERSION}')
    commands = parser.add_subparsers(metavar='COMMAND', dest='command', required=True)
    for word, command in COMMANDS.items():
        made = commands.add_parser(
            word,
            description=command.text,
            help=command.text.partition('\n')[0],
        )
        made.module = command.module
        if command.about:
            name, meaning = command.about
            made.add_argument('about', metavar=name, help=meaning)
        if word in ('synthesize', 'plan'):
            made.add_argument('--epsilon', type=float, help='default: 10')
            made.add_argument(
                '--out',
                type=_not_empty,
                help="the run's folder (--workdir); default: runs/ and its name",
            )
            made.add_argument(
                '--public-features',
                action='store_true',
                help='read features of a network trained on public photographs: more faces '
                'look real. The release says so. Needs the extra "fidelity"',
            )
    return parser


def _refuse_late(
    given: argparse.Namespace, words: Sequence[str], rest: Sequence[str]
) -> None:
    """What a command is about stands in front of flags that only its module knows.

    Behind `--real real.npz` it would be taken for the first word there.
    """
    about = COMMANDS[given.command].about
    if not about:
        return
    before = words[words.index(given.about) - 1]
    if before in rest and before.startswith('-') and '=' not in before:
        first = f'{CONSOLE} {given.command} {about[0]} {before} {given.about}'
        fail(f'{about[0]} comes first: {first} ...')


def main(argv: Sequence[str] | None = None) -> None:
    """The command, `argv` without its name."""
    words = list(sys.argv[1:] if argv is None else argv)
    given, rest = _parser().parse_known_args(words)
    _refuse_late(given, words, rest)
    if given.command in ('synthesize', 'plan'):
        _refuse_config(rest)
    command = COMMANDS[given.command]
    said = command.translate(given)
    _refuse_twice(given.command, said, rest)
    module = importlib.import_module(command.module)
    # Not handed over: the flag --config reads its overrides from here.
    sys.argv = [f'{CONSOLE} {given.command}', *said, *rest]
    module.run()


if __name__ == '__main__':
    main(sys.argv[1:])
