"""``python -m deviceplugin_operator``."""

from deviceplugin_operator.command_line import main

main()
