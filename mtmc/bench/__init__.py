"""`mtmc bench`: a folder of problems, each optimised and timed in a process of its own, and what came of it.

`suite` finds problems, `runner` runs them, `one` is the process of one problem, `rows` keeps what they measured, `figures`
sums it up, `tables` and `page` show it, `compare` sets two files side by side. docs/bench.md says what every figure is.
"""
