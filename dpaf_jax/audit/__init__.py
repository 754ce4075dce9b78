"""Empirical audits: attacks that would succeed if a stated epsilon were wrong.

canaries.py         extreme images or rows; no private one is ever read
target.py           what a method tells an audit: mechanisms it can run, coins it takes
harness.py          what the methods share to tell it
methods/            each method's own steps, made ready for an audit
class_histogram.py  the noisy class histogram, which any method may have
white_box.py        one mechanism: attack, sensitivity, noise
noise_laws.py       what Gaussian or Laplace noise claims that can be tested
randomness.py       a run's coins: inclusion, noise keys, independence
black_box.py        the released generator, from outside
bounds.py           error rates to lower bounds on epsilon
findings.py         checks and their shared confidence
session.py          all checks of a config
report.py           audit.json, audit.png, the table

Which planted fault which check catches, and with what power: docs/explanation/privacy.md.
"""
