"""What plugins share: a module for each thing that most plugins need and none should rewrite.

The kit is public, like `deviceplugin` itself. Nothing is imported here, so that a plugin pays only
for the modules that it uses: `from deviceplugin.kit import NAME`. `common/docs/kit.md` lists them.
"""
