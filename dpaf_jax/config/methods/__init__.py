"""The fields of each method's own section of the config."""

from dpaf_jax.config.methods.adversarial import (
    AdversarialConfig,
    DpbaWganConfig,
    DpCganConfig,
    DpGanConfig,
    GsWganConfig,
)
from dpaf_jax.config.methods.densities import (
    DpdmConfig,
    DpgenConfig,
    FetaConfig,
    P3gmConfig,
)
from dpaf_jax.config.methods.distances import (
    DpHpConfig,
    DpKernelConfig,
    DpMerfConfig,
    DpSinkhornConfig,
    EmbeddingConfig,
    FourierConfig,
    NdpdcConfig,
    PearlConfig,
)
from dpaf_jax.config.methods.dpaf import (
    ClassifierConfig,
    Conv2Config,
    DpafConfig,
    GeneratorConfig,
    HeadConfig,
)
from dpaf_jax.config.methods.teachers import DataLensConfig, GPateConfig, PateGanConfig

__all__ = [
    'AdversarialConfig',
    'ClassifierConfig',
    'Conv2Config',
    'DataLensConfig',
    'DpCganConfig',
    'DpGanConfig',
    'DpHpConfig',
    'DpKernelConfig',
    'DpMerfConfig',
    'DpSinkhornConfig',
    'DpafConfig',
    'DpbaWganConfig',
    'DpdmConfig',
    'DpgenConfig',
    'EmbeddingConfig',
    'FetaConfig',
    'FourierConfig',
    'GPateConfig',
    'GeneratorConfig',
    'GsWganConfig',
    'HeadConfig',
    'NdpdcConfig',
    'P3gmConfig',
    'PateGanConfig',
    'PearlConfig',
]
