"""Attacks on methods as published: their stated epsilon does not hold."""
