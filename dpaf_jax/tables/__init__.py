"""The papers' tables as data, and the command that fills them: python -m dpaf_jax.tables."""
