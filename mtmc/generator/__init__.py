"""Problems made by a grammar, in KernelBench's form and our own words, none of them one of KernelBench's.

| module | what |
|---|---|
| `layers` | the vocabulary: what stands in `__init__` and `forward`, and what it does to the shape |
| `recipes` | which layers follow one another, by grade |
| `problems` | the stream of problems of a seed, as files; what equals a KernelBench problem is left out |
"""
