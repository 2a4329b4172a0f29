"""What plugins share: a module for each thing that most plugins need and none should write again.

Public, like `deviceplugin` itself. Nothing is imported here, so that a plugin pays only for the
modules it uses: `from deviceplugin.kit import NAME`. `common/docs/kit` has a page for each.
"""
