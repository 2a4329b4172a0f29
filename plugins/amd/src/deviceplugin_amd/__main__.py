"""``python -m deviceplugin_amd``."""

from deviceplugin_amd import main

main()
