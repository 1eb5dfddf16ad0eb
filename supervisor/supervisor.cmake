# The process around the launch engine. A library, so that unit tests link its parts.
add_library(sandboxd_supervisor STATIC
	ceilings.c
	config_check.c
	config_run.c
	helper_run.c
	instance.c
	keeper.c
	listeners.c
	journal.c
	log_relay.c
	notify.c
	options.c
	own_pages.c
	peer.c
	privileges.c
	redis_helper.c
	reload.c
	serve.c
	serve_net.c
	s3_helper.c
	serve_redis.c
	serve_s3.c
	serve_secrets.c
	serve_lease.c
	serve_service.c
	serve_sessions.c
	signals.c
	stop.c
	supervise.c
	trusted_dir.c
	unseal.c
	watchdog.c
	worker_spawn.c
	workers.c
)
target_compile_definitions(sandboxd_supervisor PRIVATE SANDBOXD_LIBEXECDIR="${SANDBOXD_LIBEXECDIR}")
target_link_libraries(sandboxd_supervisor PUBLIC sandboxd_base)

add_executable(sandboxd main.c)
target_link_libraries(sandboxd PRIVATE sandboxd_supervisor sandboxd_launch)
sandboxd_product(sandboxd ${CMAKE_INSTALL_SBINDIR})
