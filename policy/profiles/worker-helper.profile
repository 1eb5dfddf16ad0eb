# sandboxd-helper unseal: a request, the sealed store and its key as descriptors; a report and the
# opened values to two pipes, then it exits.
profile worker-helper
kind worker

filter worker
default errno ENOSYS
include own.rules

# io: the files, the report, the records
allow read write close
# io_read_file asks for the size
allow fstat newfstatat lseek
# abort()
allow tgkill
