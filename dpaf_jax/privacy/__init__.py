"""The privacy core: everything that a private example passes on its way out.

plan.py             the frozen description of every mechanism, from which all else reads
budgets.py          the plan that meets a budget
accounting/         epsilon, shares of it, the least noise that meets one, room for draws
published.py        the bound of the DPAF paper, for `as_published` runs only
keys.py             where secret randomness comes from
sampling.py         Poisson draws, padded to a public capacity
clipping.py         per-example gradients, compressed, clipped, summed
summation.py        sums that compilers make in one pass
grid.py             exact sums: whole numbers on a public grid
aggregation.py      bounded rows, DPAGG
voting.py           teachers' votes, Confident-GNMax
class_histogram.py  the shares of classes, by Laplace noise
noise.py            the Gaussian
chacha.py           the random words that it is made of
"""
