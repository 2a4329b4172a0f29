"""``python -m deviceplugin_gopher``."""

from deviceplugin_gopher import main

main()
