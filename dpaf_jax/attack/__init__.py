"""Attacks on a release that the owner of its data can run: `python -m dpaf_jax.attack`."""
