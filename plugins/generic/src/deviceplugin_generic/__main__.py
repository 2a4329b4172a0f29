"""``python -m deviceplugin_generic``."""

from deviceplugin_generic import main

main()
