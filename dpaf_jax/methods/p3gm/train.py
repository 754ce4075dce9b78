"""P3GM's two phases: two releases over all records, then windows of DP-SGD steps."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from PIL import Image

from dpaf_jax.methods.p3gm.decoder import DecoderState, PhasedVae
from dpaf_jax.methods.p3gm.moments import Encoder, Moments, Sums
from dpaf_jax.methods.p3gm.plan import DECODER, EM, PCA
from dpaf_jax.release.samplers.p3gm import MIXTURE
from dpaf_jax.release.samplers.protocol import Params
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.input_pipeline import sums_of_all
from dpaf_jax.training.phase import Metrics
from dpaf_jax.training.run import Run
from dpaf_jax.training.sampled_phase import SampledPhase

Query = Callable[[Moments, ClipBatch], Sums]


def train(run: Run) -> Params:
    """Both phases in turn; returns the mixture and the decoder's average.

    Guarantee: phase 2 reads of phase 1 what that has released.
    """
    vae = PhasedVae(run.config, run.plan)
    moments = run.train(MomentsPhase(run, vae.encoder))
    return released(run.train(DecoderPhase(run, vae, moments)))


def released(state: DecoderState) -> Params:
    """The sampler's parameters: the encoder is none of them."""
    moments = state.moments
    return {
        DECODER: state.vae.ema_params[DECODER],
        MIXTURE: {'means': moments.means, 'factors': moments.factors},
    }


class MomentsPhase:
    """Phase 1: `pca`, then `em`, each a pass over all records and noise, once."""

    name = 'moments'
    total_steps = 2

    def __init__(self, run: Run, encoder: Encoder):
        self._run, self._encoder = run, encoder
        self.images = float(run.plan.num_examples)

    def init(self) -> Moments:
        return jax.device_get(self._encoder.init())

    def charged(self, step: int) -> Mapping[str, int]:
        return {PCA: int(step > 0), EM: int(step > 1)}

    def picture(self, state: Moments) -> None:
        return None

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        encoder, basis, means = self._encoder, state.basis, state.means
        if step == 0:
            shape = (basis.shape[1],) * 2
            sums = self._summed(PCA, shape, encoder.products, state)
            release = self._release_fn(PCA, encoder.directed)
            return release(state, sums, self._key(PCA)), 1, {}
        _, k, dims = means.shape
        shape = (k, 1 + dims + dims**2)
        sums = self._summed(EM, shape, encoder.class_moments, state)
        release = self._release_fn(EM, encoder.mixed)
        return release(state, sums, self._key(EM)), 2, {}

    def _key(self, name: str) -> Any:
        return self._run.on_every_device(self._run.keys.noise(name, 0))

    def _summed(
        self, name: str, shape: tuple[int, int], query: Query, state: Any
    ) -> Any:
        """A query's sums over all records, each device's part."""
        compiled = self._add_fn(query)

        def add(sums: Any, chunk: ClipBatch) -> Any:
            return compiled(sums, state, chunk)

        return sums_of_all(self._run, self._run.plan[name], shape, add)

    def _add_fn(self, query: Query) -> Callable[..., Any]:
        def add(sums: Any, state: Moments, batch: ClipBatch) -> Any:
            return sums + query(state, batch)

        return parallel.pmapped(add, self._run.devices, (0,))

    def _release_fn(
        self, name: str, then: Callable[[Moments, jax.Array], Moments]
    ) -> Callable[..., Any]:
        """Noise on the sums, and the post-processing behind it."""

        def release(state: Moments, sums: Sums, key: jax.Array) -> Moments:
            return then(state, self._encoder.noisy(name, sums, key))

        return parallel.pmapped(release, self._run.devices)


class DecoderPhase(SampledPhase):
    """Phase 2: DP-SGD of the decoder, on codes of phase 1's making."""

    name = 'decoder'

    def __init__(self, run: Run, vae: PhasedVae, moments: Moments):
        # Scanned on every backend: there is no convolution that a CPU's loop slows.
        super().__init__(run, vae, moments, unrolls=False)

    def picture(self, state: DecoderState) -> Image.Image:
        return self._run.picture(released(state))
