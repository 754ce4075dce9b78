"""Families of generator and discriminator that DP-GAN may choose in place of its DCGAN."""
