"""Run a driver: ``python -m tests.conformance.dra_drivers NAME``."""

import os
import sys

from tests.conformance.dra_drivers import bad, good, others

drivers = {**vars(good), **vars(bad), **vars(others)}
drivers[sys.argv[1]](dict(os.environ)).run()
