/*
 * The server, which has the errors, asks for these; a test that needs no route has none but its own
 * routes_dagster.
 */
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/routes.h"

const struct route_list routes_sandbox;
const struct route_list routes_files;
const struct route_list routes_git;
const struct route_list routes_service;

bool action_change(struct request *request)
{
	(void)request;
	return false;
}
