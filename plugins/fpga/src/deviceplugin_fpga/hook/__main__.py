"""``python -m deviceplugin_fpga.hook``."""

from deviceplugin_fpga.hook import main

main()
