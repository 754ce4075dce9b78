"""What is told of a machine: all that shapes bits, and nothing that a reboot changes."""

import hashlib
import os
import platform
import types

import jax
import jax._src.lib
import pytest
import threadpoolctl
import tiny_runs

from dpaf_jax.runtime import gpu_compiler, machine

X86 = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Platinum
stepping\t: 7
microcode\t: 0x5003605
cpu MHz\t\t: 2500.004
cache size\t: 36608 KB
flags\t\t: fpu vme sse sse2 ssse3 sse4_1 fma avx f16c avx2 avx512f smep sme md_clear

processor\t: 1
cpu MHz\t\t: 1200.000
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes asimdhp cpuid sve bf16
CPU implementer\t: 0x41
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What is told of a processor, from what the kernel tells of it."""
    path = tmp_path / 'cpuinfo'
    monkeypatch.setattr(machine, 'CPUINFO', path)

    def of(text):
        path.write_text(text)
        return machine.processor()

    return of


def test_a_processor_is_its_model_and_its_vector_instructions(told):
    assert told(X86) == (
        'vendor_id GenuineIntel, cpu family 6, model 85, '
        'model name Intel(R) Xeon(R) Platinum, cache size 36608 KB, '
        'avx avx2 avx512f f16c fma sse sse2 sse4_1 ssse3'
    )
    assert told(ARM) == (
        'asimd asimdhp bf16 fp sve, CPU implementer 0x41, CPU variant 0x1, '
        'CPU part 0xd40'
    )


@pytest.mark.parametrize(
    ('text', 'before', 'after'),
    [
        (X86, 'avx512f', ''),
        (X86, 'Platinum', 'Gold'),
        (X86, '85', '106'),
        (X86, '36608', '1024'),
        (ARM, 'sve', ''),
        (ARM, '0xd40', '0xd0c'),
    ],
)
def test_another_processor_is_another(told, text, before, after):
    assert before in text and told(text) != told(text.replace(before, after))


@pytest.mark.parametrize(
    ('before', 'after'),
    [
        ('2500.004', '3100.1'),
        ('0x5003605', '0x5003707'),
        ('stepping\t: 7', 'stepping\t: 5'),
        ('md_clear', 'md_clear ibrs_enhanced'),
        ('smep sme', ''),
        ('fma avx', 'avx fma'),
    ],
)
def test_a_reboot_with_another_kernel_is_the_same_machine(told, before, after):
    assert before in X86 and told(X86) == told(X86.replace(before, after))


def test_outside_linux_a_processor_has_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, 'CPUINFO', tmp_path / 'none')
    assert machine.processor().strip()


@pytest.mark.skipif(not hasattr(os, 'sched_setaffinity'), reason='Linux alone')
def test_cores_are_those_that_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    assert machine.cores() == len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert machine.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_drivers_are_told_with_the_accelerators_packages(tmp_path, monkeypatch):
    [device, *_] = jax.local_devices()
    assert machine.driver(device).startswith(device.client.platform_version)
    version = tmp_path / 'version'
    version.write_text('NVRM version: NVIDIA UNIX 570.86\nGCC version: 12\n')
    package = tmp_path / 'nvidia_cudnn_cu12-9.8.0.dist-info'
    package.mkdir()
    text = 'Metadata-Version: 2.1\nName: nvidia-cudnn-cu12\nVersion: 9.8.0\n'
    (package / 'METADATA').write_text(text)
    monkeypatch.setattr(machine, 'CUDA_DRIVER', version)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(
        machine, 'accelerator_packages', machine.accelerator_packages.__wrapped__
    )
    told = machine.driver(device)
    assert 'NVRM version: NVIDIA UNIX 570.86' in told and 'GCC' not in told
    assert 'nvidia-cudnn-cu12 9.8.0' in told


def absent():
    raise RuntimeError('cuDNN not found.')


def cuda(**versions):
    """As JAX's plugin tells versions: a function for each library."""
    known = dict.fromkeys(machine.CUDA_LIBRARIES, absent) | versions
    named = {f'{name}_get_version': version for name, version in known.items()}
    return types.SimpleNamespace(**named)


def test_versions_of_cuda_libraries_are_told_of_those_that_are_there(monkeypatch):
    [device, *_] = jax.local_devices()
    plugin = cuda(cuda_runtime=lambda: 13000, cufft=lambda: 12000)
    monkeypatch.setattr(machine, 'cuda_versions', plugin)
    assert machine.cuda_libraries() == ['cuda_runtime 13000', 'cufft 12000']
    assert 'cuda_runtime 13000, cufft 12000' in machine.driver(device)
    monkeypatch.setattr(machine, 'cuda_versions', None)
    assert machine.cuda_libraries() == []


def test_a_plugin_that_has_other_names_is_noticed(monkeypatch):
    """Else another cuDNN would be taken for the same machine."""
    plugin = cuda()
    del plugin.cudnn_get_version
    monkeypatch.setattr(machine, 'cuda_versions', plugin)
    with pytest.raises(AttributeError, match='cudnn_get_version'):
        machine.cuda_libraries()


def test_jax_has_the_private_name_that_versions_are_read_by():
    assert hasattr(jax._src.lib, 'cuda_versions')


def test_the_file_of_sines_and_cosines_is_told(tmp_path, monkeypatch):
    [device, *_] = jax.local_devices()
    assert machine.math_library.__wrapped__().startswith('libm ')
    assert machine.math_library() in machine.driver(device)
    library, maps, told = tmp_path / 'libm.so.6', tmp_path / 'maps', []
    maps.write_text(
        f'7f00-7f01 r-xp 00000000 08:01 7 {library}\n7f01-7f02 rw-p 0 0:0 0\n'
    )
    monkeypatch.setattr(machine, 'MAPPED', maps)
    for content in (b'one', b'another'):
        library.write_bytes(content)
        told.append(machine.math_library.__wrapped__())
    assert told[0] != told[1] and all(len(text) == 5 + 64 for text in told)
    maps.write_text('7f01-7f02 rw-p 0 0:0 0\n')  # linked into the program
    assert machine.math_library.__wrapped__().startswith(platform.system())


def test_the_threads_of_lapack_are_told_though_no_variable_tells_them():
    """With others an eigenvector has another sign, and a row another query."""
    before = machine.linear_algebra()
    with threadpoolctl.threadpool_limits(1, 'blas'):
        alone = machine.linear_algebra()
    with threadpoolctl.threadpool_limits(2, 'blas'):
        assert machine.linear_algebra() != alone
    assert machine.linear_algebra() == before


def test_a_file_of_lapack_is_told_by_its_content(tmp_path, monkeypatch):
    library = tmp_path / 'libblas.so'
    library.write_bytes(b'one')
    found = threadpoolctl.threadpool_info()[0] | {'user_api': 'blas'}
    found |= {'filepath': str(library), 'internal_api': 'openblas'}
    monkeypatch.setattr(machine.threadpoolctl, 'threadpool_info', lambda: [found])
    digest = hashlib.sha256(b'one').hexdigest()[:16]
    assert machine.linear_algebra().endswith(digest)


def test_a_long_sum_tells_the_threads_that_jax_began_with():
    """`cores` tells those of now, which a program may have changed since."""
    if machine.cores() < 2:
        pytest.skip('one core')
    code = (
        'import os, sys, jax; late = sys.argv[1] == "late"; late and jax.devices();'
        'os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});'
        'from dpaf_jax.runtime import machine; print(machine.cores(), machine.long_sum())'
    )
    plain = {'XLA_FLAGS': '', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '0'}
    late, before = (
        tiny_runs.run_python('-c', code, when, environment=plain).stdout.split()
        for when in ('late', 'first')
    )
    assert late[0] == before[0] == '1' and late[1] != before[1]


SHAPING = (
    'XLA_FLAGS',
    'XLA_PYTHON_CLIENT_MEM_FRACTION',  # autotuning leaves out what finds no room
    'NVIDIA_TF32_OVERRIDE',
    'TF_CUDNN_DETERMINISTIC',
    'TF_USE_CUBLASLT',
    'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE',
    'NPROC',
    'OMP_NUM_THREADS',
    'GOTO_NUM_THREADS',
)
HARMLESS = (
    'CUDA_VISIBLE_DEVICES',
    'NVIDIA_VISIBLE_DEVICES',
    'CUDA_CACHE_PATH',
    'JAX_COMPILATION_CACHE_DIR',
    'TF_CPP_MIN_LOG_LEVEL',
    'TF_CONFIG',
    'TF_TOKEN_app_terraform_io',  # a secret
    'TF_LOG',
    'SLURM_PROCID',
)


@pytest.mark.parametrize('name', SHAPING)
def test_variables_that_shape_programs_are_told(monkeypatch, name):
    monkeypatch.setenv(name, '--made_up')
    assert machine.settings()[name] == '--made_up'


@pytest.mark.parametrize('name', HARMLESS)
def test_variables_that_do_not_are_not(monkeypatch, name):
    before = machine.settings()
    monkeypatch.setenv(name, 'elsewhere')
    assert machine.settings() == before


def test_a_flag_that_the_package_sets_itself_is_none_of_its_users(monkeypatch):
    """Else a run could not move between an installation with CUDA and one without."""
    monkeypatch.delenv('XLA_FLAGS', raising=False)
    before = machine.settings()
    monkeypatch.setenv('XLA_FLAGS', gpu_compiler.FLAG)
    assert machine.settings() == before
    monkeypatch.setenv('XLA_FLAGS', f'--xla_cpu_max_isa=AVX2 {gpu_compiler.FLAG}')
    assert machine.settings()['XLA_FLAGS'] == '--xla_cpu_max_isa=AVX2'


def test_a_file_of_flags_is_told_by_its_content(tmp_path, monkeypatch):
    path = tmp_path / 'flags'
    path.write_text('--xla_cpu_max_isa=AVX2')
    monkeypatch.setenv('XLA_FLAGS', str(path))
    assert machine.settings()['XLA_FLAGS'] == '--xla_cpu_max_isa=AVX2'


def test_settings_of_jax_are_told_however_they_were_made(tmp_path):
    before = machine.settings()
    changes = {'jax_default_matmul_precision': 'highest', 'jax_log_compiles': True}
    changes['jax_compilation_cache_dir'] = str(tmp_path)
    kept = {name: jax.config.values[name] for name in changes}
    try:
        for name, value in changes.items():
            jax.config.update(name, value)
        now = machine.settings()
    finally:
        for name, value in kept.items():
            jax.config.update(name, value)
    differ = {name for name in now if now[name] != before[name]}
    assert differ == {'jax_default_matmul_precision'}
