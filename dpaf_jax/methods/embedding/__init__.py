"""What methods share that release one noisy mean embedding and match a generator to it."""
