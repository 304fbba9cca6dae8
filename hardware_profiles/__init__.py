"""Facts of GPUs: `load("h200")`, `names()`, `detect()`."""

from mtmc.hardware_profiles.profile import Efficiency, Profile, detect, load, names

__all__ = ["Efficiency", "Profile", "detect", "load", "names"]
