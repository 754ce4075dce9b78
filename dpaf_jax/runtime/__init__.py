"""What every room stands on: errors, files, devices, processes, the command line."""
