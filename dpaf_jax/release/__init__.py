"""All that works from a release alone: its files, its samplers, what is drawn from it."""
