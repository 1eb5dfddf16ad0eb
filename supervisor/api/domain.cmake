# The pure part of the api worker (no system call; time, ids and randomness are arguments), and the
# store. They are libraries so that unit tests and fuzzers link exactly what the worker links.
add_library(sandboxd_api_domain STATIC
	${CMAKE_CURRENT_LIST_DIR}/session/component_name.c
	${CMAKE_CURRENT_LIST_DIR}/session/endpoint.c
	${CMAKE_CURRENT_LIST_DIR}/session/environment.c
	${CMAKE_CURRENT_LIST_DIR}/session/fit.c
	${CMAKE_CURRENT_LIST_DIR}/session/idmap.c
	${CMAKE_CURRENT_LIST_DIR}/session/quota.c
	${CMAKE_CURRENT_LIST_DIR}/session/registry.c
	${CMAKE_CURRENT_LIST_DIR}/session/session.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec.c
	${CMAKE_CURRENT_LIST_DIR}/session/summary.c
	${CMAKE_CURRENT_LIST_DIR}/session/transitions.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/flow.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/frames.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/job.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/load.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/progress.c
	${CMAKE_CURRENT_LIST_DIR}/janitor/plan.c
)
target_link_libraries(sandboxd_api_domain PUBLIC sandboxd_json sandboxd_base)
