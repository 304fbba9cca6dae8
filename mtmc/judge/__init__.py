"""The judge: the only place where candidates run, always in worker processes.

| module | what |
|---|---|
| `judge`, `outcomes` | orders the jobs for one program and turns their outcomes into a Verdict |
| `executor`, `nursery`, `warden`, `worker`, `wire` | the judge's end, imports held, workers forked and watched, messages |
| `sandbox`, `landlock`, `mounts`, `processes`, `folders` | what locks candidates in, and what is left of them removed |
| `faults` | exceptions into Verdicts |
| `jobs` | what a worker does: compile, interpret, verify, observe |
| `door`, `candidate`, `pretence` | what a candidate file is, the way to its code, and CPU tensors that pass for CUDA ones |
| `verify`, `observed`, `forms`, `draws` | correctness: both sides called, what is watched, inputs |
| `accuracy`, `oracle`, `conditioning`, `copies` | the rule, the fp64 oracle, how far its results move, copies of models |
| `measure`, `timing`, `baselines`, `clocks` | interleaved measurement: jobs, rounds, what else is timed, NVML |
| `dynamic` | checks around calls: memory, contents, launches, streams, what must stay as it was |
| `standin`, `resources`, `reach` | compiling for a GPU that is not there; whether 32 bits do for the indices |
| `interpreter*` | Triton's interpreter, repaired and watched |
| `predict`, `eager`, `traffic`, `counts`, `work`, `integers`, `ttir` | the analytic time model |
| `cache` | verdicts kept between runs |
"""
