"""Methods that match a generator to one noisy mean embedding, and what they share."""
