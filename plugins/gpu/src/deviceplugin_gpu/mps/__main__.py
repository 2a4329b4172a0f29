"""``python -m deviceplugin_gpu.mps``: images have no other commands than the plugin's."""

from deviceplugin_gpu.mps.supervisor import main

main()
