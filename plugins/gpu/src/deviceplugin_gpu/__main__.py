"""``python -m deviceplugin_gpu``."""

from deviceplugin_gpu import main

main()
