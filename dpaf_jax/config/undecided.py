"""Which fields of a config are left to the data."""

from dpaf_jax.config.schema import Config

FIELDS = (  # section, name
    ('data', 'num_classes'),
    ('data', 'class_names'),
    ('data', 'image_size'),
    ('data', 'channels'),
    ('data', 'num_examples'),
    ('privacy', 'delta'),
)
OPEN = {'class_names': '?'}  # of others it is 0


def undecided(config: Config) -> list[str]:
    """The fields that the data are to decide: 'data.channels', ....

    `num_examples` alone is none: N is then known as soon as images are prepared.
    """
    private = config.privacy.is_private
    names = [
        f'{section}.{name}'
        for section, name in FIELDS
        if getattr(getattr(config, section), name) == OPEN.get(name, 0)
        and (name != 'delta' or private)
    ]
    return names if names != ['data.num_examples'] else []
