"""What must be set before JAX is imported, and where real data are."""

import functools
import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from dpaf_jax.runtime.memory import keep_freed_memory

NUM_DEVICES = 8
MEMORY = 2 * 2**30  # bytes of a test process above which programs are forgotten
CACHE = Path(__file__).parent.parent / '.pytest_cache' / 'jax'


def _prepare_environment() -> None:
    """Gives this process, and those that tests start, eight CPU devices and a cache."""
    flags = os.environ.get('XLA_FLAGS', '')
    if 'xla_force_host_platform_device_count' not in flags:
        flags += f' --xla_force_host_platform_device_count={NUM_DEVICES}'
        if version('jaxlib').startswith('0.10.'):  # XLA aborts on flags it has dropped
            # Compiles faster, where the workers share the cores already.
            flags += ' --xla_cpu_use_fusion_emitters=false'
            flags += ' --xla_cpu_parallel_codegen_split_count=1'
        os.environ['XLA_FLAGS'] = flags.strip()
    keep_freed_memory()
    gc.set_threshold(200_000, 20, 100)  # programs are many objects, and few are garbage
    # Most tests, and the processes that they start, compile much and compute next to nothing.
    os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
    # What is compiled once is read back by later runs and by the other workers.
    os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', str(CACHE))
    os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.2')
    if 'PYTEST_XDIST_WORKER' in os.environ:  # the workers share the cores already
        os.environ.setdefault('OMP_NUM_THREADS', '1')


_prepare_environment()  # before the conftest of any folder imports JAX


def pytest_configure(config: pytest.Config) -> None:
    """Keeps tests off accelerators that they do not ask for."""
    if 'gpu' not in config.getoption('markexpr').replace('not gpu', ''):
        os.environ.setdefault('JAX_PLATFORMS', 'cpu')
        if 'jax' in sys.modules:
            sys.modules['jax'].config.update(
                'jax_platforms', os.environ['JAX_PLATFORMS']
            )


@pytest.fixture(scope='session')
def data_dir() -> Path:
    """The folder of real data sets; tests that want it are skipped without it."""
    folder = os.environ.get('DPAF_DATA')
    if not folder:
        pytest.skip('DPAF_DATA names no folder with real data sets')
    if not Path(folder).is_dir():
        pytest.skip(f'DPAF_DATA={folder} is not a folder')
    return Path(folder).resolve()


@pytest.fixture(scope='module')
def optimised() -> Iterator[None]:
    """For modules that compute much, or whose floats must be those that users get."""
    import jax

    jax.config.update('jax_disable_most_optimizations', False)
    yield
    jax.config.update('jax_disable_most_optimizations', True)


# Rooms in which every digit of epsilon counts; in the others a coarse grid saves minutes.
FINE = 'privacy', 'release', 'verify', 'docs'


@pytest.fixture(scope='module', autouse=True)
def quick_accounting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Epsilon is found quickly, and a little too high."""
    if request.path.parent.name in FINE:
        yield
        return
    import tiny_runs

    with tiny_runs.accounting_grid():
        yield


@pytest.fixture(scope='session', autouse=True)
def shared(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tells where the workers of this session keep runs that all of them read."""
    import tiny_runs

    own = tmp_path_factory.getbasetemp()
    is_worker = 'PYTEST_XDIST_WORKER' in os.environ
    tiny_runs.shared = (own.parent if is_worker else own) / 'finished'


@pytest.fixture(scope='session')
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A release of a kind (`tiny_releases.SETTINGS`), written once."""
    import tiny_releases

    @functools.cache
    def of(kind: str) -> Path:
        return tiny_releases.write(kind, tmp_path_factory.mktemp('made') / 'release')

    return of


@pytest.fixture
def known_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is rebuilt once a config and N, and epsilon found once a privacy.json."""
    import tiny_releases

    from dpaf_jax.verify.statement import check_statement

    monkeypatch.setattr('dpaf_jax.methods.dpaf.plan', tiny_releases.plan_once)
    monkeypatch.setattr(
        'dpaf_jax.verify.verification.check_statement',
        functools.partial(check_statement, recompute=tiny_releases.epsilons_once),
    )


@pytest.fixture
def copied(tmp_path: Path, made: Callable[[str], Path], known_plan: None) -> Path:
    """A certified release to damage."""
    return Path(shutil.copytree(made('one shot'), tmp_path / 'release'))


@pytest.fixture(scope='module', autouse=True)
def bounded_memory() -> Iterator[None]:
    """Forgets compiled programs behind a module once they take much memory.

    A worker that keeps all it ever compiled grows to 6 GB. What is needed again is read
    back from the cache on disk.
    """
    yield
    pages = Path('/proc/self/statm')
    if not pages.exists():  # not Linux
        return
    resident = int(pages.read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE')
    if 'jax' in sys.modules and resident > MEMORY:
        sys.modules['jax'].clear_caches()
        gc.collect()
