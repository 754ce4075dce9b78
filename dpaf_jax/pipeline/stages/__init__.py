"""A file for each stage of the main job: its `run` takes the job and leaves its result."""
