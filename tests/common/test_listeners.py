"""Functions that are called after a change."""

from deviceplugin._platform.callbacks import Listeners


def test_all_are_called_in_order_until_they_end() -> None:
    listeners, called = Listeners(), list[str]()
    end = listeners.add(lambda: called.append("one"))
    listeners.add(lambda: called.append("two"))
    listeners.call()
    end()
    end()
    listeners.call()
    assert ["one", "two", "two"] == called
