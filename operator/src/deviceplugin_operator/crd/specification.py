"""What a ``DevicePlugin`` object asks for, judged by the plugin's own settings."""

from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import deviceplugin as dp
from deviceplugin.kit import configuration as cfg
from deviceplugin_operator import names
from deviceplugin_operator.crd import catalogue
from deviceplugin_operator.crd.catalogue import CUSTOM, PLUGINS
from deviceplugin_operator.manifests import Template, components, driver, template

Object = Mapping[str, Any]
_Many = TypeVar("_Many", bound=Sized)
_PROTOCOL: Final = "protocol"
_DRIVER: Final = "driver-name"


@dataclass(frozen=True)
class Rollout:
    """How a change reaches the nodes."""

    canary: int = 1
    max_unavailable: int | str = "10%"
    deadline: float = 120.0
    on_failure: str = "RollBack"
    allow_fewer_devices: bool = False

    def at_once(self, nodes: int) -> int:
        """Return how many of ``nodes`` may be without the plugin: at least one."""
        given = self.max_unavailable
        most = given if isinstance(given, int) else nodes * int(given.removesuffix("%")) // 100
        return max(1, most)


@dataclass(frozen=True)
class Variant:
    """The settings for the nodes of one profile; nodes without one have the profile ``""``."""

    profile: str
    config: str
    """The configuration file of the plugin."""
    resources: tuple[str, ...]
    """The resources that it offers; a name that ends in ``*`` stands for several."""
    before: "Variant | None" = None
    """With DRA: the same by the device-plugin protocol. It has the mounts that claims need, so it
    comes first, and what fails goes back to it."""
    is_step: bool = False
    """Whether another one follows."""


@dataclass(frozen=True)
class Wanted:
    """What a valid object asks for."""

    name: str
    uid: str
    generation: int
    plugin: str
    image: str
    paused: bool
    node_selector: Mapping[str, str]
    profile_label: str
    rollout: Rollout
    template: Template
    variants: tuple[Variant, ...]
    """The first is for the nodes without a profile."""
    driver: str = ""
    """Name of the DRA driver, if any settings name a protocol: then each pod can use DRA, because a
    node whose protocol or profile changes has to release what claims hold."""

    @property
    def profiles(self) -> list[str]:
        """The label values with a variant of their own."""
        return [one.profile for one in self.variants if one.profile]


@dataclass(frozen=True)
class _Custom:
    config: Mapping[str, Any] = field(default_factory=dict)
    resources: tuple[str, ...] | None = None
    """None if there is no list: an empty one says that nothing is offered."""


@dataclass(frozen=True)
class _Spec:
    plugin: str
    image: str = ""
    paused: bool = False
    node_selector: Mapping[str, str] = field(default_factory=dict)
    profile_label: str = ""
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    components: tuple[str, ...] = ()
    rollout: Rollout = Rollout()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By the name of the plugin."""


def _spec(**given: Any) -> _Spec:
    settings = {name: given.pop(name) for name in _UNION if name in given}
    return _Spec(**given, settings=settings)


def _profile_problem(name: str) -> str:
    if cfg.matches(name, names.PROFILE):
        return ""
    return f"a name is 1 to {names.MAX_PROFILE} lower-case letters, digits and hyphens"


def _label_problem(key: str) -> str:
    fits = cfg.matches(key, names.LABEL) and key.find("/") <= names.MAX_DOMAIN
    return "" if fits else f"is not the key of a label{_SUCH_AS_KEY}"


def _image_problem(image: str) -> str:
    fits = len(image) <= names.MAX_IMAGE and cfg.matches(image, names.IMAGE)
    return "" if fits else "is not an image, such as registry.example.com/gpu-device-plugin:1.0"


def _at_most(most: int, kind: cfg.Kind[_Many]) -> cfg.Kind[_Many]:
    """Return ``kind`` with as many entries as the API server takes."""

    def check(place: cfg.Place, given: _Many) -> _Many:
        if len(given) > most:
            raise place.fault(f"has {len(given)} entries, of at most {most}")
        return given

    return kind.then(check)


def _of_one_plugin(place: cfg.Place, given: Mapping[str, cfg.Place]) -> None:
    """Report settings of another plugin, and fields that are missing."""
    plugin = given["plugin"].raw if "plugin" in given else ""
    profiles = given["profiles"].keys() if "profiles" in given else {}
    for keys in (given, *(one.keys() for one in profiles.values())):
        for name in _UNION:
            if name in keys and name != plugin:
                keys[name].fault(f"is for plugin {name}")
    if plugin == CUSTOM and "image" not in given:
        place.fault(f"image: is needed for plugin {CUSTOM}")
    if ("profiles" in given) != ("profileLabel" in given):
        place.fault("profileLabel: is needed with profiles, and only with them")


_SUCH_AS_KEY: Final = ", such as example.com/gpu: letters, digits, '-', '_' and '.' after a domain"
_LABEL_VALUE: Final = cfg.text(
    names.LABEL_VALUE, "a label's value: at most 63 letters, digits, '-', '_' and '.'"
)
_PERCENT: Final = cfg.text("^([1-9][0-9]?|100)%$", "a number above 0, or a percentage such as 10%")
_ROLLOUT: Final = cfg.record(
    Rollout,
    {
        "canary": cfg.integer(1, 100),
        "maxUnavailable": cfg.as_argument(cfg.either(cfg.integer(1), _PERCENT), "max_unavailable"),
        "deadline": cfg.duration().to(lambda given: given.total_seconds()),
        "onFailure": cfg.as_argument(cfg.choice("RollBack", "Halt"), "on_failure"),
        "allowFewerDevices": cfg.as_argument(cfg.boolean(), "allow_fewer_devices"),
    },
)
_CUSTOM: Final = cfg.record(
    _Custom,
    {
        "config": cfg.mapping_of(cfg.anything()),
        "resources": _at_most(
            names.MAX_RESOURCES, cfg.list_of(cfg.text(problem=catalogue.resources_problem))
        ),
    },
)
_UNION: Final[Mapping[str, cfg.Kind[Any]]] = {
    **dict.fromkeys(PLUGINS, cfg.mapping_of(cfg.anything())),
    CUSTOM: _CUSTOM,
}
SPEC: Final = cfg.record(
    _spec,
    {
        "plugin": cfg.needed(cfg.choice(*PLUGINS, CUSTOM)),
        "image": cfg.text(problem=_image_problem),
        "paused": cfg.boolean(),
        "nodeSelector": cfg.as_argument(
            _at_most(names.MAX_LABELS, cfg.mapping_of(_LABEL_VALUE, _label_problem)),
            "node_selector",
        ),
        "profileLabel": cfg.as_argument(cfg.text(problem=_label_problem), "profile_label"),
        "profiles": _at_most(
            names.MAX_PROFILES, cfg.mapping_of(cfg.record(dict, _UNION), _profile_problem)
        ),
        "components": _at_most(names.MAX_COMPONENTS, cfg.list_of(cfg.choice(*components()))),
        "rollout": _ROLLOUT,
        **_UNION,
    },
    rules=[_of_one_plugin],
)


def read(found: Object) -> Wanted:
    """Return what the ``DevicePlugin`` object ``found`` asks for.

    Raises:
        ConfigError: All that is wrong, a line each. About settings, the words are the plugin's.
    """
    spec = cfg.finished(cfg.of_plain(found.get("spec"), "spec"), SPEC)
    metadata = found["metadata"]
    hosted = spec.plugin in PLUGINS
    own = catalogue.kept(spec.plugin) if hosted else catalogue.OWNED
    kept = frozenset(f"DP_{key.upper().replace('-', '_')}" for key in own)
    of_dra = _driver(spec)
    account = names.account(spec.plugin, metadata["name"]) if of_dra else ""
    given = template(spec.plugin if hosted else None, spec.components, kept, account)
    ours = {_DRIVER: of_dra} if of_dra and hosted else {}
    return Wanted(
        metadata["name"],
        metadata.get("uid", ""),
        metadata.get("generation", 0),
        spec.plugin,
        spec.image,
        spec.paused,
        spec.node_selector,
        spec.profile_label,
        spec.rollout,
        given,
        tuple(_variants(spec, {**given.document, **ours})),
        of_dra,
    )


def _driver(spec: _Spec) -> str:
    """Return the name of the DRA driver if any settings name a protocol, or an empty string."""
    given = [
        spec.settings.get(spec.plugin),
        *(one.get(spec.plugin) for one in spec.profiles.values()),
    ]
    settings = [one.config if isinstance(one, _Custom) else one for one in given if one]
    if not any(one.get(_PROTOCOL) in ("dra", "device-plugin") for one in settings):
        return ""
    if spec.plugin != CUSTOM:
        return driver(spec.plugin)
    found = {str(one[_DRIVER]) for one in settings if _DRIVER in one}
    text = "".join(found)
    if len(found) != 1 or len(text) > names.MAX_DRIVER or not cfg.matches(text, names.DOMAIN):
        raise dp.ConfigError(
            "spec.custom.config: driver-name: is needed beside protocol, such as lamp.example.com, "
            f"of at most {names.MAX_DRIVER} characters, and the same in all profiles: the operator "
            "counts the devices of this DRA driver"
        )
    return text


def _variants(spec: _Spec, before: Mapping[str, Any]) -> Iterator[Variant]:
    """Yield the variant of each profile, or raise ConfigError with all that is wrong with any."""
    whole = spec.settings.get(spec.plugin)
    places = {"": ("spec", None)} | {
        name: (f"spec.profiles.{name}", one.get(spec.plugin)) for name, one in spec.profiles.items()
    }
    problems: list[str] = []
    for profile, (place, own) in places.items():
        try:
            yield _variant(spec.plugin, profile, before, whole, own)
        except dp.ConfigError as error:
            problems += [f"{place}.{spec.plugin}: {line}" for line in str(error).splitlines()]
    if problems:
        raise dp.ConfigError("\n".join(problems))


def _variant(plugin: str, profile: str, before: Mapping[str, Any], whole: Any, own: Any) -> Variant:
    if plugin == CUSTOM:
        general, special = whole or _Custom(), own or _Custom()
        document = {**general.config, **special.config}
        config = catalogue.written(document)
        if problem := catalogue.size_problem(config):
            raise dp.ConfigError(f"config: {problem}")
        offered = general.resources if special.resources is None else special.resources
        return _with_earlier(Variant(profile, config, offered or ()), document)
    given = {**(whole or {}), **(own or {})}
    kept, renamed = catalogue.kept(plugin), PLUGINS[plugin].renamed
    problems = [f"{key}: cannot be set here: {kept[key]}" for key in given if key in kept]
    problems += [f"{key}: is called {renamed[key]} here" for key in given if key in renamed]
    document = {**before, **given}
    config = catalogue.written(document)
    resources: tuple[str, ...] = ()
    if problem := catalogue.size_problem(config):
        problems.append(problem)
    else:
        try:
            resources = catalogue.judged(plugin, config)
        except dp.ConfigError as error:
            problems.append(str(error))
    if problems:
        raise dp.ConfigError("\n".join(problems))
    return _with_earlier(Variant(profile, config, resources), document)


def _with_earlier(made: Variant, document: Mapping[str, Any]) -> Variant:
    if document.get(_PROTOCOL) != "dra":
        return made
    config = catalogue.written({**document, _PROTOCOL: "device-plugin"})
    return replace(made, before=replace(made, config=config, is_step=True))
