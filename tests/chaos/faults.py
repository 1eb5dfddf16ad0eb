"""The judge is judged: with each of these planted, a run must be red, and for that reason.

base/plant.h says how they are planted; a release build has none of them.
"""
# name of the plant → complaints of which at least one must come
FAULTS = {
    "answer-early": {"session lost", "component lost", "component", "task lost", "expiry", "back", "row left"},
    "drop-frame": {"frame missing", "frame lost"},
    "frame-twice": {"frame twice"},
    "leave-group": {"left over: groups"},
    "leave-user": {"left over: redis users", "redis"},
    "forget-job": {"task never ended"},
}

# What else goes wrong meanwhile: the worker that answers dies, the rest lives.
KILLS = [("kill", "sandboxd-api", 1)]
PAUSE = (2, 5)
SECONDS = 30
PATIENCE = 15
