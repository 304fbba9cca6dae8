"""Run folders: what a run did, on disk."""
