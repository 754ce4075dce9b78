"""How long things take, as ratios within one run; results in docs/performance.md."""
