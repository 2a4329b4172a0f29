"""``python -m deviceplugin_operator.crd``."""

import sys

from deviceplugin_operator.crd.definition import main

raise SystemExit(main(sys.argv[1:]))
