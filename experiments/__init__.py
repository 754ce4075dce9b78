"""Measurements that support the docs; not part of the package."""
