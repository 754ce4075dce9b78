"""The card of a synthetic data set: what the Hugging Face Hub shows of it.

It says what the release says, no more: nothing in it comes from private data.
"""

import json
from typing import Any

import numpy as np

from dpaf_jax.release.card import classes, headline, is_certified
from dpaf_jax.release.drawing import Release
from dpaf_jax.runtime.text import factor
from dpaf_jax.runtime.version import VERSION

SIZES = ('n<1K', '1K<n<10K', '10K<n<100K', '100K<n<1M', '1M<n<10M', '10M<n<100M')

TEMPLATE = """\
---
pretty_name: Synthetic {records}{under}
{task}size_categories:
- {size}
tags:
- synthetic
{tag}- dpaf_jax
dataset_info:
  features:
{features}
  splits:
  - name: train
    num_examples: {number}
configs:
- config_name: default
  data_files:
  - split: train
    path: {file}
---

# Synthetic {records}

{number} synthetic {records} in {classes}, drawn from a generator that was trained on
private data by {method} with dpaf_jax {version}. All of them are synthetic.

## Privacy

**{headline}**

- Guarantee: {guarantee}
- ε: {epsilon}
- δ: {delta:g}
- Neighbours: {neighbors}.
- N = {num_examples}, public.

{meaning}

Drawing more of them costs nothing further. The release that they came from has
`privacy.json`, from which anybody can recompute ε: `python -m dpaf_jax.verify`.

## Limits

- {unit}
- Choosing settings by results on real data is not covered by ε.
- Labels are those that the generator was asked for, or that its classifier gave: some are
  wrong.
- Rare kinds of records are missing or blurred: noise hides what few have. Biases of the
  real data are still there, or stronger.
- Figures measured on these records are not figures of the real data. Check a conclusion on
  real data before anybody relies on it.

## Use

```python
from datasets import load_dataset

data = load_dataset('parquet', data_files='{file}')['train']
```

A licence is for whoever publishes this to choose.
"""


ONE_RECORD = """\
The unit of protection is one record with its label, not one person. Somebody with k
  records is protected at k times ε, and only at a δ that is up to k e^((k-1) ε) times as
  large: at ε = 10 next to nothing for k = 3."""
ONE_GROUP = """\
The unit of protection is a whole group of records that belong together, such as all of
  one person: one of each group took part in training."""


def dataset_card(
    release: Release, labels: np.ndarray, features: dict[str, Any], file: str
) -> str:
    """The card as Markdown, with the metadata that the Hub reads in front.

    Args:
        release: that the records were drawn from.
        labels: [N] integers; theirs.
        features: columns, as `datasets.Features.to_dict` has them.
        file: name of the Parquet file beside the card.
    """
    privacy, data = release.privacy, release.config.data
    certified = is_certified(privacy)
    return TEMPLATE.format(
        under=' under differential privacy' if certified else '',
        tag='- differential-privacy\n' if certified else '',
        records='rows of a table' if data.columns else 'images',
        task='' if data.columns else 'task_categories:\n- image-classification\n',
        size=size_category(len(labels)),
        features='\n'.join(_feature(name, kind) for name, kind in features.items()),
        number=len(labels),
        file=file,
        classes=classes(data),
        method=release.config.method,
        version=VERSION,
        headline=headline(privacy),
        guarantee=privacy['guarantee'],
        epsilon=privacy['epsilon'] if certified else 'none',
        delta=privacy['delta'],
        neighbors=privacy['neighbors'],
        unit=ONE_GROUP if data.group else ONE_RECORD,
        num_examples=privacy['num_examples'],
        meaning=_meaning(privacy['epsilon']) if certified else NOTHING_HOLDS,
    )


def size_category(number: int) -> str:
    """The Hub's name for so many records."""
    return SIZES[min(max(len(str(number)) - 3, 0), len(SIZES) - 1)]


NOTHING_HOLDS = (
    'Nothing bounds what these records tell about a single private one. Do not hand them '
    'to anybody\nwho may not see the private data.'
)


def _meaning(epsilon: float) -> str:
    return (
        'Whether or not any one record was among the private data, every outcome is equally '
        f'likely up to a\nfactor of {factor(epsilon)} (e^ε), but for events of probability δ.'
    )


def _feature(name: str, kind: dict[str, Any]) -> str:
    if kind['_type'] == 'ClassLabel':
        names = ''.join(
            f"\n          '{k}': {_text(name)}" for k, name in enumerate(kind['names'])
        )
        return (
            f'  - name: {name}\n    dtype:\n      class_label:\n        names:{names}'
        )
    shown = 'image' if kind['_type'] == 'Image' else kind['dtype']
    return f'  - name: {_text(name)}\n    dtype: {shown}'


def _text(name: str) -> str:
    """A name as YAML: every JSON string is one."""
    return json.dumps(name, ensure_ascii=False)
