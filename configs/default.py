"""Every field of a run, with DPAF's canonical values; other configs are deltas of this.

Values that the papers print are theirs (batch 24, mu = 8, n_critic = 3, top 90 %,
z of 100 dimensions, budgets (0.1, rest, 0.1)); what they leave open is ours and is
listed with its reason in docs/algorithm.md. Any field can be replaced on the command
line: --config.privacy.epsilon=1 --config.dpaf.conv2.gradient=group.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """Returns the canonical configuration: certified DPAF on the embedded digits."""
    config = ConfigDict()
    config.method = 'dpaf'  # which generative method: one file in dpaf_jax/methods/

    config.data = data = ConfigDict()
    data.source = 'digits'  # digits | tfds:<name> | folder:, npz:, celeba:, ffhq:<path>
    # ... or table:<path>, a CSV file or an npz archive, with
    data.columns = ''  # 'age:0:120,bmi:10:60': its numbers, with public bounds, and
    data.label = 'label'  # ... the column of its labels, 0 .. num_classes - 1
    data.image_size = 16  # images are cropped to the centred square, then resized
    data.channels = 1  # 1: grey, 3: colour
    data.num_classes = 10  # labels are 0 .. num_classes - 1
    data.num_examples = 0  # N, public, or any larger number; 0: from the prepared data
    data.test_fraction = 0.2  # held out by a hash where the source has no test split
    data.attribute = ''  # celeba: 'gender' or 'hair'; ffhq: 'gender'
    data.annotations = ''  # ffhq: folder or file of the FFHQ features JSON
    data.class_prior = ()  # public class probabilities; empty: uniform
    data.cache = ''  # where decoded images are kept (private!); '': in the workdir

    config.privacy = privacy = ConfigDict()
    privacy.guarantee = 'certified'  # certified | as_published (certifies nothing)
    privacy.epsilon = 10.0  # total budget; inf: no noise, no clip, no guarantee
    privacy.delta = 1e-5  # total; should be below 1 / num_examples
    privacy.budgets = '0.1,rest,0.1'  # phase 1, conv2*, DPAGG: '0.1', '20%' or 'rest'
    privacy.overflow_fraction = 0.01  # share of delta paid for batches that overflow

    config.networks = networks = ConfigDict()
    networks.layers = 'C2-C1-x'  # conv1-conv2*-conv3*, each halves; '': by image_size
    networks.kernel_size = 4
    networks.width = 32  # maps of the first layer; doubles from layer to layer ...
    networks.max_width = 256  # ... up to this
    networks.fc_width = 128  # units between the two fully connected layers
    networks.generator = 'reverse'  # of the discriminator | styled, at every layer
    networks.generator_width = 32  # as width, for the generator, from the image inwards
    networks.z_dim = 100
    networks.label_injection = 'first_layer'  # first_layer | input | none (D only)

    config.dpaf = dpaf = ConfigDict()
    dpaf.batches = 'mixed'  # mixed (canonical) | class_pure: one aggregate per class
    dpaf.batch_size = 24  # expected images per aggregate; 0: all there are (q = 1)
    dpaf.classes_per_step = 0  # class_pure: classes in turn, so many a step; 0: all
    dpaf.epochs = 5.0  # how often DPAGG sees an image, in expectation
    dpaf.asymmetry = 8  # mu: conv2* is updated every so many DPAGG steps
    dpaf.n_critic = 3  # the generator is updated every so many DPAGG steps ...
    dpaf.generator_steps = 1  # ... by so many steps
    dpaf.keep_fraction = 0.9  # of each per-example gradient, by magnitude, before clip
    dpaf.taps = 'conv2'  # DPAGG's columns, of rows.TAPS

    dpaf.classifier = classifier = ConfigDict()  # phase 1
    # What learns: all | conv1 (head random) | none (conv1 random too) | labeller: a linear
    # layer on wavelets, kept to label the synthetic images.
    classifier.private = 'all'
    classifier.unit = 'singleton'  # what is clipped: singleton | group
    classifier.num_groups = 8  # unit = group: groups per step
    classifier.batch_size = 192  # expected
    classifier.sampling_prob = 0.0  # above 0: batch_size is this share of N
    classifier.epochs = 2.0  # 0: a labeller's, by N and epsilon (so learning_rate)
    classifier.l2_clip_norm = 1.0
    classifier.optimizer = 'adam'  # adam | momentum | sgd
    classifier.learning_rate = 1e-3

    dpaf.conv2 = conv2 = ConfigDict()
    conv2.gradient = 'singleton'  # singleton | group | cotangent | none (stays random)
    conv2.num_groups = 8  # gradient = group: groups per update
    conv2.batch_size = 192  # expected; canonical: asymmetry x batch_size
    conv2.l2_clip_norm = 1.0
    conv2.optimizer = 'adam'
    conv2.learning_rate = 2e-4

    dpaf.head = head = ConfigDict()  # conv3* and FC*
    head.optimizer = 'adam'
    head.learning_rate = 2e-4

    dpaf.generator = generator = ConfigDict()
    generator.loss_single = 1.0  # weight: adversarial, on single fakes (canonical)
    generator.loss_aggregate = 0.0  # weight: adversarial on (noisy) aggregates
    generator.loss_match = 0.0  # weight: unbiased distance to the class aggregates
    # Weight: total variation of fakes, times the length of the noise in the aggregates, as
    # long as loss_match is plain. Without it few records bring images of mere noise.
    generator.loss_smooth = 0.0
    # How often, at equal distances, loss_match is whitened: measured from then on in units of
    # the fakes' own spread. 0: plain throughout; class-pure batches of all images alone.
    generator.whitenings = 0
    # ...if the noise of a released mean row is at most so long, in units of the row's bound;
    # 0: however long it is. Where it is long, whitening brings images of mere noise.
    generator.whiten_below = 0.0
    generator.batch_size = 24  # images per step
    generator.optimizer = 'adam'
    generator.learning_rate = 2e-4
    generator.schedule = 'constant'  # constant | cosine: down to 2 % at the end
    generator.ema_decay = 0.999  # of the released weights; 0: the last ones
    generator.latent_scale = 1.0  # of released images' draws; above 1: more variety
    # How far released images are bent at most, before a labeller labels them: standard
    # deviation of a pixel's smooth random displacement, as a share of the side. 0: not at all.
    generator.warp = 0.0

    config.dp_merf = dp_merf = ConfigDict()  # method = 'dp_merf'
    dp_merf.features = 2048  # columns of the embedding: half cosines, half sines
    dp_merf.length_scales = (0.3,)  # of the kernel, x sqrt(pixels); several: their mean
    dp_merf.generator_steps = 1200  # after the one release; they cost no epsilon
    dp_merf.batch_size = 200  # images per generator step
    dp_merf.learning_rate = 2e-3  # Adam's, falling to 2 % of it along a cosine
    dp_merf.ema_decay = 0.99  # of the released weights; 0: the last ones

    config.dp_gan = dp_gan = ConfigDict()  # method = 'dp_gan'
    dp_gan.batch_size = 256  # expected real images per discriminator step
    dp_gan.discriminator_steps = 3  # n_D, for each generator step
    dp_gan.generator_steps = 400
    dp_gan.width = 8  # the discriminator's, as networks.width: noise counts parameters
    dp_gan.fc_width = 32  # its units between the two fully connected layers
    dp_gan.l2_clip_norm = 1.0  # of a record's gradient
    dp_gan.discriminator_learning_rate = 1e-3  # Adam's
    dp_gan.generator_batch_size = 256
    dp_gan.generator_learning_rate = 1e-3  # Adam's
    dp_gan.ema_decay = 0.98  # of the released weights, per generator step; 0: the last

    config.g_pate = g_pate = ConfigDict()  # method = 'g_pate'
    g_pate.teachers = 300  # n, on disjoint parts of the data
    g_pate.batch_size = 16  # records of its part that a teacher sees at a step, in turn
    g_pate.teacher_steps = 1  # of each teacher in front of a vote; they cost no epsilon
    g_pate.width = 32  # units of a teacher's first layer ...
    g_pate.fc_width = 16  # ... and of its second
    g_pate.teacher_learning_rate = 1e-3  # Adam's
    g_pate.steps = 300  # of the student; what sets the noise is steps x fakes x
    g_pate.fakes = 20  # ... fakes of a step, which the teachers vote on, x
    g_pate.projections = 10  # ... k, random directions of each fake
    g_pate.cell = 2  # fakes and directions smooth over so many pixels; 1: as printed
    g_pate.clip = 1e-4  # c: a gradient along a direction is cut to [-c, c] ...
    g_pate.bins = 2  # ... and put into one of B bins
    g_pate.threshold = 0.0  # share of teachers that must agree; 0: no check, no cost
    g_pate.threshold_noise = 3.0  # of that check, over the bins'; those from epsilon
    g_pate.generator_learning_rate = 1e-3  # Adam's, falling to 2 % along a cosine
    g_pate.ema_decay = 0.98  # of the released weights; 0: the last ones
    g_pate.noisy_prior = False  # classes from a Laplace histogram: budgets '0.01,rest'
    g_pate.agreement = False  # exact rates, data-dependent epsilon: in nonprivate/
    config.dpba_wgan = dpba_wgan = ConfigDict()  # method = 'dpba_wgan'
    dpba_wgan.batch_size = 256  # expected real images per critic step
    dpba_wgan.discriminator_steps = 3  # critic's, for each generator step
    dpba_wgan.generator_steps = 400
    dpba_wgan.width = 8  # the critic's, as networks.width: noise counts parameters
    dpba_wgan.fc_width = 32  # its units between the two fully connected layers
    dpba_wgan.penalty_weight = 10.0  # lambda
    dpba_wgan.alternate = True  # a coin picks the term of each record; False: both
    dpba_wgan.noise_ratio = 2.0  # sigma_t is between the least and so many times it
    dpba_wgan.noise_levels = 3  # ... from so many values; 1: the least at every step
    dpba_wgan.l2_clip_norm = 1.0  # of a record's gradient
    dpba_wgan.discriminator_learning_rate = 1e-3  # Adam's
    dpba_wgan.generator_batch_size = 256
    dpba_wgan.generator_learning_rate = 1e-3  # Adam's
    dpba_wgan.ema_decay = 0.98  # of released weights, per generator step; 0: the last
    dpba_wgan.cost_clip = 1.0  # as_published: Delta of line 10, C of 2C/B
    dpba_wgan.per_label = False  # a model for each label, in turn

    config.gs_wgan = gs_wgan = ConfigDict()  # method = 'gs_wgan'
    gs_wgan.batch_size = 100  # records behind each critic: n_D = N / batch_size
    gs_wgan.discriminator_steps = 5  # plain steps of a critic in each of its turns
    gs_wgan.generator_steps = 400  # turns in all
    gs_wgan.width = 8  # the critics', as networks.width
    gs_wgan.fc_width = 32  # their units between the two fully connected layers
    gs_wgan.penalty_weight = 10.0  # lambda
    gs_wgan.l2_clip_norm = 1.0  # C, of the gradient by each generated image
    gs_wgan.discriminator_learning_rate = 1e-3  # Adam's
    gs_wgan.generator_batch_size = 32  # B, images whose gradients are released
    gs_wgan.generator_learning_rate = 1e-3  # Adam's
    gs_wgan.ema_decay = 0.98  # of the released weights, per turn; 0: the last

    config.dpgen = dpgen = ConfigDict()  # method = 'dpgen'
    dpgen.width = 16  # maps at the finest scale; doubles from scale to scale ...
    dpgen.max_width = 128  # ... up to this
    dpgen.scales = 2  # of the network, each half the side of the one before
    dpgen.patch = 2  # the finest scale's cells hold so many pixels a side
    dpgen.sigma_max = 10.0  # noise levels fall geometrically from this public constant
    dpgen.sigma_min = 0.1  # ... to this, for images in [-1, 1]
    dpgen.num_levels = 14
    dpgen.batch_size = 512  # expected images per step; 0: all there are (q = 1)
    dpgen.microbatch = 64  # of them at a time on a device
    dpgen.multiplicity = 4  # (level, noise) draws per image, averaged inside the clip
    dpgen.steps = 150
    dpgen.l2_clip_norm = 1.0
    dpgen.optimizer = 'adam'
    dpgen.learning_rate = 5e-3
    dpgen.schedule = 'cosine'  # constant | cosine: down to 2 % at the end
    dpgen.ema_decay = 0.99  # of the released weights; 0: the last ones
    dpgen.label_dropout = 0.1  # chance of a draw to train without its label
    dpgen.sampler = 'heun'  # heun (deterministic flow) | langevin (annealed)
    dpgen.guidance = 3.0  # classifier-free: 1 none, above 1 towards the class
    dpgen.langevin_steps = 5  # at each level
    dpgen.langevin_step_size = 0.2  # times sigma^2
    dpgen.candidates = 10  # as_published: k of equation 8 ...
    dpgen.threshold = 4.0  # ... and its beta
    # A source of PUBLIC images to train on first, without noise, such as npz:/path; your
    # word that they are. as_published also private:<share>. Empty: a random start.
    dpgen.warm_start = ''
    dpgen.warm_start_steps = 2000  # of `microbatch` images each

    config.run = run = ConfigDict()  # nothing here changes what is computed
    run.devices = 0  # accelerators to use; 0: all
    run.checkpoint_seconds = 300.0
    run.keep_checkpoints = 2

    config.samples = samples = ConfigDict()
    samples.num = 60000  # of the samples stage; labels follow the prior

    config.evaluation = evaluation = ConfigDict()
    evaluation.seeds = 5
    evaluation.epochs = 5  # over the synthetic images
    evaluation.batch_size = 128
    evaluation.wide_resnet = ''  # '16-2' or '40-4': a third classifier, for a GPU
    evaluation.train_on_real = False  # also the ceiling, under nonprivate/

    config.release = release = ConfigDict()
    release.test_set_is_public = False  # then the model card states test accuracies
    return config
