"""The original DADSTORM configuration language: files and scripts of the course project run as they are.

A file is read (``reading``), cut into settings, operators and commands (``statements``), its operators are understood
clause by clause (``clauses``), their inputs found (``inputs``), the number of fields of every stream worked out
(``widths``), and all of it is written down as a topology (``writing``), which is compiled like any other. So there is
one engine and one set of checks; what is particular to the language ends here. Commands are brought into script syntax
(``commands``). Every mistake and warning names the old file, line and column. ``docs/legacy.md`` tells what is taken
how.
"""
