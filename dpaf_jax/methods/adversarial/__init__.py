"""What methods share in which a generator learns against a discriminator."""
