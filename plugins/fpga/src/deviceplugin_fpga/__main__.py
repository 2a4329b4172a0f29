"""``python -m deviceplugin_fpga``."""

from deviceplugin_fpga import main

main()
