"""The C99 back end: a Program as source files, and as a library on this machine."""

from mgrade.deploy.c.host import Compiled, compile, compile_if_possible
from mgrade.deploy.c.printer import print_c

__all__ = ["Compiled", "compile", "compile_if_possible", "print_c"]
