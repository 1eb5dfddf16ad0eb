# sandboxd-api: HTTP on two listening sockets it was given, SQLite in its state directory, frames from
# the shims. No program, no thread, no namespace; its root is empty.
profile worker-api
kind worker

filter worker
default errno ENOSYS
include own.rules
include api.rules
allow @service
