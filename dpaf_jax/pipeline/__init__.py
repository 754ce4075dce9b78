"""The job, from a source of images to a release and its report."""
