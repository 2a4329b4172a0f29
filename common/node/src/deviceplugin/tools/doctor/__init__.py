"""Checks a node and reports what is wrong for device plugins: ``deviceplugin doctor``.

It changes nothing, and has no checks for particular plugins: installed plugins add their own, which
use ``deviceplugin.checks``.
"""
