"""Methods that release a noisy mean embedding and match a generator to it, and what they share."""
