"""The version of the package, which every release names."""

VERSION = '0.1.0'
