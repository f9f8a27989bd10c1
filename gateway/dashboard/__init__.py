"""The page in the browser, `/ui`: what waits for a person, sessions, runs, time, memory, platforms. For the person who runs the gateway."""
