"""A run's report, made from whole inputs that a test changes in one place."""

from html.parser import HTMLParser

import numpy as np
import tiny

from dpaf_jax.config.public import public_dict
from dpaf_jax.pipeline import report
from dpaf_jax.release import pictures

MECHANISM = {
    'name': 'dpagg',
    'kind': 'sum of <features>',
    'sampling_prob': 0.004,
    'l2_sensitivity': 2.0,
    'noise_multiplier': 1.375,
    'steps': 900,
    'expected_batch_size': 24.0,
    'capacity': 68,
}
PRIVACY = {
    'guarantee': 'certified',
    'epsilon': 2.0,
    'epsilon_rdp': 2.25,
    'delta': 1e-5,
    'overflow_delta': 1e-7,
    'neighbors': 'zero-out',
    'num_examples': 6000,
    'accountant': 'PLD',
    'mechanisms': [MECHANISM],
    'dp_event': {'class': 'NoOpDpEvent'},
}
ACCURACY = {
    'synthetic': {
        'cnn': {'mean': 0.71, 'std': 0.0141, 'values': [0.7, 0.72]},
        'logistic_regression': {'mean': 0.5, 'std': 0.0, 'values': [0.5]},
    }
}
CONFIG = public_dict(tiny.config(data__num_classes=2))
ENVIRONMENT = {'dpaf_jax': '9.8.7', 'commit': 'abcdef012345', 'python': '3.12.1'}
CHECKED = {'verify': None, 'audit': None, 'attacks': {}}
CONSISTENT = {
    'verdict': 'consistent: epsilon = 2.0.',
    'when': '2026-03-04 05:06 UTC',
    'passed': True,
    'current': True,
}
ATTACKED = {
    'verdict': 'nothing found',
    'when': 'at noon',
    'violated': False,
    'current': True,
}
HISTORY = [
    {'phase': p, 'step': s, 'seconds': s, 'epsilon_spent': e, 'loss_head': 1 / s}
    for p, s, e in (('classifier', 8, 0.1), ('gan', 8, 0.5), ('gan', 16, 2.0))
]


def declaring(**data):
    """The config of a run whose data section says so."""
    return CONFIG | {'data': CONFIG['data'] | data}


class Page(HTMLParser):
    """Collects text, tags, and every attribute that could fetch something."""

    VOID = ('meta', 'img', 'link', 'br', 'hr', 'input')

    def __init__(self, html: str):
        super().__init__()
        self.tags, self.links, self.open, self.text = [], [], [], ''
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ('src', 'href', 'srcset', 'action')]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def written(workdir, with_images=True, **changes):
    """The content of report.json, and the page: parsed, and as it is."""
    found = {
        'config': CONFIG,
        'privacy': PRIVACY,
        'fidelity': {},
        'accuracy': ACCURACY,
        'floor': None,
        'ceiling': {},
        'checked': CHECKED,
        'history': HISTORY,
        'wall_seconds': {'train': 250.0, 'evaluate': 30.5},
        'environment': ENVIRONMENT,
    }
    images = np.zeros((4, 8, 8, 1), np.uint8)
    grid = pictures.sample_grid(images, np.arange(4) % 2, 2)
    made = report.write_report(workdir, found | changes, grid if with_images else None)
    html = (workdir / 'report.html').read_text(encoding='utf-8')
    return made, Page(html), html
