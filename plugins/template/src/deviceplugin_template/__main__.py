"""``python -m deviceplugin_template``, and the command ``template-device-plugin``."""

from typing import NoReturn

import deviceplugin as dp

from . import SerialPlugin


def main() -> NoReturn:
    """Run the plugin."""
    dp.main(SerialPlugin)


if __name__ == "__main__":
    main()
