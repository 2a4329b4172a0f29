"""``python -m deviceplugin_intelgpu``."""

from deviceplugin_intelgpu import main

main()
