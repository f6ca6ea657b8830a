"""What the rest of DADSTORM takes from the original language. Apart, because few runs need any of it."""

from dadstorm.legacy.commands import Script, read_script
from dadstorm.legacy.convert import Converted, convert, load
from dadstorm.legacy.reading import is_legacy
from dadstorm.plan import ScriptLine

__all__ = ["Converted", "Script", "ScriptLine", "convert", "is_legacy", "load", "read_script"]
