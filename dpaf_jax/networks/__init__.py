"""Flax modules and fixed features; none knows a mechanism or a data set."""
