"""``deviceplugin completion``: what a shell needs to complete our commands."""
