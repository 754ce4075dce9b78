"""Named settings that several configs share, as deltas of the default."""

from ml_collections import ConfigDict


def one_shot(config: ConfigDict) -> ConfigDict:
    """DPAGG once per class over all images; the generator matches the aggregates.

    DPAF with class-pure batches, q = 1 and one step: all of epsilon buys one release of
    a class x feature matrix, and everything after it is post-processing.
    """
    config.networks.label_injection = 'none'
    dpaf = config.dpaf
    dpaf.batches = 'class_pure'
    dpaf.batch_size = 0
    dpaf.epochs = 1.0
    dpaf.n_critic = 1
    dpaf.taps = 'count,fourier,conv1,conv2'
    dpaf.classifier.private = 'none'
    dpaf.conv2.gradient = 'none'
    generator = dpaf.generator
    generator.loss_single = 0.0
    generator.loss_match = 1.0
    generator.batch_size = 200
    generator.learning_rate = 2e-3
    generator.schedule = 'cosine'
    generator.ema_decay = 0.99
    return config


def small_batches(config: ConfigDict) -> ConfigDict:
    """Algorithm 1 on class-pure batches: the choices with which it learns.

    Each is compared with the printed one in docs/explanation/algorithm.md.
    """
    config.networks.label_injection = 'none'
    config.networks.layers = 'C1-C1-x'
    config.networks.generator = 'fine'
    dpaf = config.dpaf
    dpaf.batches = 'class_pure'
    dpaf.batch_size = 240
    dpaf.epochs = 0.0  # 500 steps, whatever N is
    dpaf.asymmetry = 2  # nothing but the length of a compiled window
    dpaf.n_critic = 1
    dpaf.taps = 'fourier,wavelet,shape,texture,conv2'
    if config.data.channels == 3:  # photographs
        dpaf.taps = f'contrast,leaves,{dpaf.taps}'
    dpaf.conv2.gradient = 'none'
    dpaf.head.learning_rate = 1e-3
    dpaf.head.penalty = 0.1
    dpaf.head.begins_at_zero = True
    generator = dpaf.generator
    generator.loss_single = 0.0
    generator.loss_aggregate = 1.0
    generator.batch_size = 120
    generator.learning_rate = 1e-3
    return _with_labeller(config, '50%,rest,50%')


def labelled(config: ConfigDict) -> ConfigDict:
    """To `one_shot` adds a labeller: a linear classifier that labels the images made.

    Three quarters of epsilon go to the labeller: what it knows of the classes cannot be
    got from their mean features, while those take noise well.
    """
    config.networks.layers = ''  # by the size
    dpaf = config.dpaf
    dpaf.taps = 'count,contrast,fourier,wavelet,shape,texture,labeller,leaves,kinds'
    dpaf.axes = 'few'
    config.networks.generator = 'fine'
    dpaf.generator.learning_rate = 4e-3
    dpaf.generator_steps = 0  # by the noise
    dpaf.generator.loss_smooth = 0.35
    dpaf.generator.whitenings = 1
    # 60 000 records in ten classes: from epsilon 6 on. With more noise it gains nothing, and
    # images look scratched, or have blots.
    dpaf.generator.whiten_below = 0.03
    dpaf.generator.latent_scale = 0.0  # by the channels
    return _with_labeller(config, '75%,rest,25%')


def _with_labeller(config: ConfigDict, budgets: str) -> ConfigDict:
    """Phase 1 is a labeller, which is kept: it labels the images that are drawn."""
    config.privacy.budgets = budgets
    config.dpaf.generator.warp, config.dpaf.generator.warp_of_few = 0.03, 0.07
    config.dpaf.generator.denoise = 0.1
    labeller = config.dpaf.classifier
    labeller.private = 'labeller'
    labeller.features = 'combined'
    labeller.optimizer = 'momentum'
    labeller.l2_clip_norm = 0.5
    labeller.sampling_prob = 1 / 15
    labeller.epochs = labeller.learning_rate = 0.0  # by N and epsilon
    return config


def with_public_features(config: ConfigDict) -> ConfigDict:
    """To `labelled` adds what a network that knows photographs sees: declared public data.

    The labeller reads them, too. They cost far more than wavelets, so steps are shorter and
    fewer.
    """
    dpaf = config.dpaf
    dpaf.taps = dpaf.taps.replace(',leaves,kinds', '') + ',perceptual'
    dpaf.axes = 'none'  # not measured
    dpaf.classifier.features = 'perceptual'
    dpaf.generator.denoise = 0.0  # what has no grain would lose the look of skin
    # Wider, faces burn out; narrower, they teach less (docs/explanation/public_features.md).
    dpaf.generator.latent_scale = 0.85
    dpaf.generator_steps = dpaf.generator_steps * 3 // 4 or 1500
    dpaf.generator.batch_size = 64
    return config


def choose(config: ConfigDict, variant: str) -> ConfigDict:
    """Applies a variant by the name that follows a config's path: `mnist.py:canonical`."""
    if variant == 'recommended':
        return labelled(one_shot(config))
    if variant == 'one_shot':
        return one_shot(config)
    if variant == 'canonical':
        return small_batches(config)
    if variant != 'printed':
        raise ValueError(
            f"variant is {variant!r}. Choose 'recommended', 'one_shot', 'canonical' or "
            "'printed'."
        )
    return config


def photographs(config: ConfigDict, variant: str) -> ConfigDict:
    """As `choose`, for images that show the same when mirrored, and are as likely so.

    As many are drawn as there are records, between 20 000 and 60 000: of 64 x 64 drawing and
    evaluating 60 000 takes as long as training.
    """
    config.samples.num = 0
    config.dpaf.mirrored = variant in ('recommended', 'canonical')
    return choose(config, variant)


def colour32(config: ConfigDict, variant: str) -> ConfigDict:
    """Colour images of 32 x 32, at the settings of the grey ones of 28 x 28."""
    config.data.image_size = 32
    if variant == 'recommended':
        return config
    config.networks.layers = 'C2-C1-x' if variant == 'printed' else 'C1-C1-x'
    if variant == 'one_shot':
        config.dpaf.taps = 'count,fourier,conv2'
        config.dpaf.generator_steps = 4000
        config.dpaf.generator.batch_size = 200
    return config


def grey28(config: ConfigDict, variant: str) -> ConfigDict:
    """60 000 grey images of 28 x 28: MNIST and its like."""
    config.data.image_size = 28
    config.data.num_examples = 60000
    choose(config, variant)
    if variant == 'one_shot':
        config.networks.layers = 'C1-C1-x'
        config.dpaf.taps = 'count,fourier,conv2'
        config.dpaf.generator_steps = 4000
    return config


def large(config: ConfigDict, variant: str, layers: str) -> ConfigDict:
    """Photographs of 64 x 64 and more; `layers` but for the recommended variant."""
    photographs(config, variant)
    if variant == 'recommended':
        return config
    config.networks.layers = layers
    if variant == 'one_shot':
        config.dpaf.generator_steps = 4000
        config.dpaf.generator.batch_size = 64
    elif variant == 'printed':
        config.dpaf.batch_size = 64
        config.dpaf.generator.batch_size = 64
        config.dpaf.conv2.batch_size = 512
    return config
