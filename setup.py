"""The list of packages; everything else is in pyproject.toml.

``importers/`` is installed as ``relax2xla.importers``. The list is found, so that no new
sub-package is missed, and found under ``importers/`` itself, so that it is complete even where
the symlink ``relax2xla/importers`` was lost (some archives and Windows checkouts drop it).
"""

from setuptools import find_packages, setup

importers = ["relax2xla.importers"]
importers += [f"relax2xla.importers.{name}" for name in find_packages("importers")]
core = find_packages(include=["relax2xla", "relax2xla.*"], exclude=["relax2xla.importers*"])

setup(packages=core + importers)
