"""The settings of a driver, as its parts need them."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """What a driver is called, and its directories."""

    name: str
    """The name of the driver, such as ``gopher.example.com``."""
    node: str
    """The name of its node."""
    driver_dir: Path
    """The directory of all drivers; each has one of its own in it."""
    registry_dir: Path
    """The directory in which the kubelet finds plugins."""
    cdi_dir: Path
    """A directory from which container runtimes read CDI specifications."""

    @property
    def directory(self) -> Path:
        """The directory of this driver."""
        return self.driver_dir / self.name

    @property
    def claims_dir(self) -> Path:
        """The directory of the records of claims."""
        return self.directory / "claims"
