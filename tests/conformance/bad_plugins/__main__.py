"""``python -m tests.conformance.bad_plugins MODULE.CLASS DIRECTORY`` runs one of the plugins."""

import sys
from importlib import import_module

module, _, name = sys.argv[1].partition(".")
sys.exit(getattr(import_module(f"tests.conformance.bad_plugins.{module}"), name)().main())
