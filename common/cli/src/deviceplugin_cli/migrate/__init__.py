"""Turns a peer's manifest into an overlay of ours: ``deviceplugin migrate``.

It knows no peer: installed plugins know theirs, by ``deviceplugin.kit.migration``.
"""
