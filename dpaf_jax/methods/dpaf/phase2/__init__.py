"""Phase 2 (Algorithm 1, lines 6-17): the GAN, whose discriminator aggregates in private."""
