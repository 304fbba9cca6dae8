"""How good policies are on stored trees, without running a kernel: courses, the figures over them, and pages."""
