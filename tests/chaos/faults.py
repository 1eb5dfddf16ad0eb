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
    "run-redelivered": {"unknown task"},
    "skip-lock": {"ran at once"},
}

# What else goes wrong meanwhile, where it must: the worker that answers dies. Its successor would find a
# job that was forgotten.
KILLS = [("kill", "sandboxd-api", 1)]
PAUSES = {"answer-early": (2, 5)}
NEVER = (3600, 3600)
SECONDS = 30
PATIENCE = 15
