# An agent that runs commands and edits files: larger, two cores.
profile agent
kind session
# Node.js, the JVM and build tools read cpuinfo, meminfo and their like.
proc masked
# Package managers and build tools that ask for ownership or for ports; see plan.h for what they get.
root allowed

limit tmpfs           2GiB
limit inodes          1000000
limit memory          4GiB
limit pids            2048
limit files           4096
limit cpu             200
limit cpu-weight      100
limit ptys            64
limit output-rate     10MiB
limit output-max      64MiB
limit ttl             60min
limit ttl-max         7d
limit load-timeout    none
limit execute-timeout none
limit command-timeout 60s

filter command
default errno ENOSYS
include command.rules
include agent.rules

filter shim
default errno ENOSYS
include own.rules
include shim.rules

filter helper
default errno ENOSYS
include own.rules
include helper.rules
