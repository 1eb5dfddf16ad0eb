# The pure part of the api worker (no system call; time, ids and randomness are arguments), and the
# store. They are libraries so that unit tests and fuzzers link exactly what the worker links.
add_library(sandboxd_api_domain STATIC
	${CMAKE_CURRENT_LIST_DIR}/celery/message.c
	${CMAKE_CURRENT_LIST_DIR}/celery/message_control.c
	${CMAKE_CURRENT_LIST_DIR}/celery/message_result.c
	${CMAKE_CURRENT_LIST_DIR}/egress/admit.c
	${CMAKE_CURRENT_LIST_DIR}/egress/describe.c
	${CMAKE_CURRENT_LIST_DIR}/egress/policy.c
	${CMAKE_CURRENT_LIST_DIR}/git/parse.c
	${CMAKE_CURRENT_LIST_DIR}/git/words.c
	${CMAKE_CURRENT_LIST_DIR}/session/body_fields.c
	${CMAKE_CURRENT_LIST_DIR}/session/component_name.c
	${CMAKE_CURRENT_LIST_DIR}/session/endpoint.c
	${CMAKE_CURRENT_LIST_DIR}/session/environment.c
	${CMAKE_CURRENT_LIST_DIR}/session/fit.c
	${CMAKE_CURRENT_LIST_DIR}/session/idmap.c
	${CMAKE_CURRENT_LIST_DIR}/session/quota.c
	${CMAKE_CURRENT_LIST_DIR}/session/registry.c
	${CMAKE_CURRENT_LIST_DIR}/session/snapshots.c
	${CMAKE_CURRENT_LIST_DIR}/session/session.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_airbyte.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_command.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_control.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_egress.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_files.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_git.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_runtime.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_snapshot.c
	${CMAKE_CURRENT_LIST_DIR}/session/spec_suspend.c
	${CMAKE_CURRENT_LIST_DIR}/session/summary.c
	${CMAKE_CURRENT_LIST_DIR}/session/suspension.c
	${CMAKE_CURRENT_LIST_DIR}/session/tenants.c
	${CMAKE_CURRENT_LIST_DIR}/session/tenant_quota.c
	${CMAKE_CURRENT_LIST_DIR}/session/transitions.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/command_log.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/flow.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/frames.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/job.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/load.c
	${CMAKE_CURRENT_LIST_DIR}/jobs/progress.c
	${CMAKE_CURRENT_LIST_DIR}/denials/ring.c
	${CMAKE_CURRENT_LIST_DIR}/janitor/plan.c
)
target_link_libraries(sandboxd_api_domain PUBLIC sandboxd_endpoint sandboxd_json sandboxd_base)

# libyaml's emitter only: no parser of it may be linked where this is (tests/lint/symbols.py).
add_library(sandboxd_api_airbyte STATIC
	${CMAKE_CURRENT_LIST_DIR}/airbyte/document.c
	${CMAKE_CURRENT_LIST_DIR}/airbyte/slug.c
)
target_link_libraries(sandboxd_api_airbyte PUBLIC sandboxd_base PRIVATE PkgConfig::YAML)

# The schema's steps, compiled in byte by byte with their checksums (store/migrate.h).
set(SANDBOXD_MIGRATIONS
	0001_sessions.sql
	0002_components.sql
	0003_operating.sql
	0004_endpoints.sql
	0005_runtime.sql
	0006_registry.sql
)
set(SANDBOXD_POSTGRES_MIGRATIONS
	postgres/0001_store.sql
	postgres/0002_runtime.sql
	postgres/0003_registry.sql
)
set(SANDBOXD_POSTGRES_UNDO
	postgres/0001_store.undo.sql
	postgres/0002_runtime.undo.sql
	postgres/0003_registry.undo.sql
)
# The rows of one list, into rows and bodies.
function(sandboxd_migrations rows_name bodies_name prefix)
	set(_rows "")
	set(_bodies "")
	set(_version 0)
	foreach(name IN LISTS ARGN)
		set(_file ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../migrations/${name})
		get_filename_component(_plain ${name} NAME)
		math(EXPR _version "${_version} + 1")
		set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_file})
		file(SHA256 ${_file} _sum)
		file(READ ${_file} _hex HEX)
		string(REGEX REPLACE "(..)" "0x\\1," _bytes "${_hex}")
		string(REGEX REPLACE "((0x..,){16})" "\\1\n\t" _bytes "${_bytes}")
		string(APPEND _bodies "static const unsigned char ${prefix}_${_version}[] = {\n\t${_bytes}0x00};\n")
		string(APPEND _rows "\t{${_version}, \"${_plain}\", \"${_sum}\", ${prefix}_${_version}},\n")
	endforeach()
	set(${rows_name} "${_rows}" PARENT_SCOPE)
	set(${bodies_name} "${_bodies}" PARENT_SCOPE)
endfunction()
sandboxd_migrations(_rows _bodies sql ${SANDBOXD_MIGRATIONS})
sandboxd_migrations(_pg_rows _pg_bodies postgres ${SANDBOXD_POSTGRES_MIGRATIONS})
sandboxd_migrations(_undo_rows _undo_bodies undo ${SANDBOXD_POSTGRES_UNDO})
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/generated/migrations.c CONTENT
"/* Generated from migrations/. */
#include \"supervisor/api/store/migrate.h\"

#include <stddef.h>

${_bodies}
const struct migration migrations[] = {
${_rows}\t{0, NULL, NULL, NULL},
};

${_pg_bodies}
const struct migration postgres_migrations[] = {
${_pg_rows}\t{0, NULL, NULL, NULL},
};

${_undo_bodies}
const struct migration postgres_undo[] = {
${_undo_rows}\t{0, NULL, NULL, NULL},
};
")

# Names of servers, for the two that connect to them.
add_library(sandboxd_api_names STATIC ${CMAKE_CURRENT_LIST_DIR}/names.c)
target_link_libraries(sandboxd_api_names PUBLIC sandboxd_base PkgConfig::SYSTEMD PRIVATE sandboxd_name_lookup)

add_library(sandboxd_api_store STATIC
	${CMAKE_CURRENT_LIST_DIR}/store/audit_file.c
	${CMAKE_CURRENT_LIST_DIR}/store/holds.c
	${CMAKE_CURRENT_LIST_DIR}/store/migrate.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_batch.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_connect.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_dsn.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_hosts.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_lease.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_open.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_queries.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_reads.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_reason.c
	${CMAKE_CURRENT_LIST_DIR}/store/pg_setup.c
	${CMAKE_CURRENT_LIST_DIR}/store/queries.c
	${CMAKE_CURRENT_LIST_DIR}/store/queue.c
	${CMAKE_CURRENT_LIST_DIR}/store/queue_calls.c
	${CMAKE_CURRENT_LIST_DIR}/store/rows.c
	${CMAKE_CURRENT_LIST_DIR}/store/snapshot_cipher.c
	${CMAKE_CURRENT_LIST_DIR}/store/snapshot_keys.c
	${CMAKE_CURRENT_LIST_DIR}/store/snapshot_store.c
	${CMAKE_CURRENT_LIST_DIR}/store/sqlite.c
	${CMAKE_CURRENT_LIST_DIR}/store/sqlite_open.c
	${CMAKE_CURRENT_LIST_DIR}/store/sqlite_reads.c
	${CMAKE_CURRENT_LIST_DIR}/store/writes.c
	${PROJECT_BINARY_DIR}/generated/migrations.c
)
target_link_libraries(sandboxd_api_store PUBLIC sandboxd_api_names sandboxd_api_domain PkgConfig::SYSTEMD PkgConfig::SODIUM PRIVATE PkgConfig::SQLITE PkgConfig::PQ)
