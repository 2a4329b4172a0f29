"""Finds what is wrong in a cluster: ``kubectl deviceplugin doctor`` and ``sysdump``."""
