"""The network of benchmarks.clipping in PyTorch, with Opacus's per-sample gradients."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from opacus import GradSampleModule
from torch import nn
from torch.nn import functional

from dpaf_jax.networks.architecture import SLOPE

# Where JAX computes, so that both are timed on one card.
PLACE = 'cuda' if jax.default_backend() == 'gpu' else 'cpu'


class Convolutions(nn.Module):
    """conv1 and conv2*: strided, padded as JAX's 'SAME', label planes where they join."""

    def __init__(self, kernels: list[np.ndarray], joins_at: int | None):
        super().__init__()
        self.joins_at = joins_at
        self.layers = nn.ModuleList()
        for kernel in kernels:
            side, _, into, out = kernel.shape
            layer = nn.Conv2d(into, out, side, stride=2)
            layer.weight.data = torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy())
            nn.init.zeros_(layer.bias)
            self.layers.append(layer)

    def forward(self, maps: torch.Tensor, planes: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] and [B, K] to [B, m, p, p]."""
        for i, layer in enumerate(self.layers):
            if i == self.joins_at:
                spread = planes[:, :, None, None].expand(-1, -1, *maps.shape[2:])
                maps = torch.cat([maps, spread], dim=1)
            side, kernel = maps.shape[-1], layer.kernel_size[0]
            total = max((-(-side // 2) - 1) * 2 + kernel - side, 0)
            low = total // 2
            pads = (low, total - low, low, total - low)
            maps = functional.leaky_relu(layer(functional.pad(maps, pads)), SLOPE)
        return maps


def _inputs(problem: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    image, planes, v = (
        torch.from_numpy(np.array(problem.units[name])).to(PLACE)
        for name in ('image', 'planes', 'v')
    )
    return image.permute(0, 3, 1, 2), planes, v.permute(0, 3, 1, 2)


def _network(problem: Any) -> Convolutions:
    parts = [problem.params[name]['params'] for name in ('conv1', 'conv2')]
    kernels = [
        np.array(part[layer]['kernel']) for part in parts for layer in sorted(part)
    ]
    where = {'none': None, 'input': 0, 'first_layer': 1}
    made = Convolutions(kernels, where[problem.networks.conv1.label_injection])
    return made.to(PLACE)


def opacus(problem: Any, clip: float) -> Callable[[], Any]:
    """Sums of clipped per-sample gradients, as Opacus's optimiser makes them."""
    model = GradSampleModule(_network(problem), loss_reduction='sum')
    image, planes, v = _inputs(problem)

    def call() -> list[np.ndarray]:
        model.zero_grad()
        (model(image, planes) * v).sum().backward()
        samples = [p.grad_sample for p in model.parameters()]
        norms = [s.reshape(len(s), -1).norm(2, dim=-1) for s in samples]
        factor = (clip / (torch.stack(norms, dim=1).norm(2, dim=1) + 1e-6)).clamp(max=1)
        return [torch.einsum('i,i...', factor, s).cpu().numpy() for s in samples]

    return call


def torch_plain(problem: Any) -> Callable[[], Any]:
    """One gradient of the sum."""
    model = _network(problem)
    image, planes, v = _inputs(problem)

    def call() -> list[np.ndarray]:
        model.zero_grad()
        (model(image, planes) * v).sum().backward()
        return [p.grad.cpu().numpy() for p in model.parameters() if p.grad is not None]

    return call
