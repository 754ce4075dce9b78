"""The loop that every method trains in: phases, batches, checkpoints, progress."""
