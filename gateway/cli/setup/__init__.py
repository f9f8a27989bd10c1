"""`hermes setup`: asks at most seven questions, tests each answer, and writes a commented configuration."""
