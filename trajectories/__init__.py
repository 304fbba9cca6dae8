"""What runs did, on disk: run folders, and trees of judged programs to learn from."""
