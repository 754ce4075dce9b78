"""How long things take, as ratios within a run; results: docs/explanation/performance.md."""
