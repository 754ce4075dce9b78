"""Phase 1 (Algorithm 1, lines 1-5): a classifier, of which conv1 or a labeller is kept."""
