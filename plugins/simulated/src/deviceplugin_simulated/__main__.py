"""``python -m deviceplugin_simulated``."""

from deviceplugin_simulated import main

main()
