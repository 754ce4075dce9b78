"""What DPAGG sums of one image: layout.py joins to one bounded row what features.py reads."""
