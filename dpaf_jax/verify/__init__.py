"""Checks of a release by its folder alone: `python -m dpaf_jax.verify --release=...`."""
