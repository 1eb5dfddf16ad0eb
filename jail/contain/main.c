/*
 * sandbox-contain: our shim in the container of a foreign engine (include/sandboxd/contain.h).
 *
 * Runs as uid 0 of the container, which has no capability but those that the shim needs. What it is
 * told comes from sandboxd-provider alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jail/contain/contain.h"

int main(int argc, char *argv[])
{
	if (argc == 5 && strcmp(argv[1], "start") == 0)
		return contain_start(argv + 2);
	if (argc == 2 && strcmp(argv[1], "connect") == 0)
		return contain_connect();
	(void)fputs("sandbox-contain: run by sandboxd-provider in its containers\n", stderr);
	return EXIT_FAILURE;
}
