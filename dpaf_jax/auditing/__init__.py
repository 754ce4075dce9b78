"""Empirical audits: attacks that would succeed if a stated epsilon were wrong.

canaries.py    extreme images; no private one is ever read
target.py      what a method tells an audit: mechanisms it can run, coins it takes
mechanisms.py  one mechanism: attack, sensitivity, noise
coins.py       a run's coins: inclusion, noise keys, independence
generator.py   the released generator, from outside
bounds.py      error rates to lower bounds on epsilon
findings.py    checks and their shared confidence
session.py     all checks of a config
report.py      audit.json, audit.png, the table

What each check is for, by the faults that tests/test_audit_faults.py plants:

fault                                   caught by
no clip                                 sensitivity, epsilon (Gaussian)
gradient through a batch's aggregate    sensitivity
division by the batch's true size       sensitivity
division by a class's true size         sensitivity
noise halved                            noise level, epsilon (Gaussian)
noise 2 % too small                     noise level
noise on each device before the sum     noise level, on several devices
other noise on each device after it     noise level, on several devices: replicas differ
groups' noise without the factor 2      noise level
one noise key for two steps             noise keys, noise independence
one noise key for two mechanisms        noise keys, noise independence
one noise key for reals and fakes       noise keys; noise independence if it is the step's
one draw for two mechanisms             inclusion: same step, same window
draws that never change                 inclusion: two steps
draws without replacement               inclusion

Power: a sensitivity check is no test but a search; in the scenes that it tries, a true bound
is reached by singletons and by DPAGG, and about 0.6 of it by groups. The noise level is
measured on 600 000 values: its standard error is 0.09 %, so 1 % is 11 of them where 4 to 5
alarm. Equal keys are found with certainty. Inclusion tests count who
is drawn twice: with one draw for two mechanisms that is 1/q times what chance gives. The
bounds on epsilon are the weakest: a finding's `detail` says what it could show at all.
"""
