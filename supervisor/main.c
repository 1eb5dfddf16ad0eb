/*
 * sandboxd: keeper or supervisor, by how it was started.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

#include "supervisor/journal.h"
#include "supervisor/keeper.h"
#include "supervisor/listeners.h"
#include "supervisor/notify.h"
#include "supervisor/options.h"
#include "supervisor/supervise.h"

static int run(const struct options *options, int argc, char *const argv[], struct err *err)
{
	/* A service manager is recognised by what it passes; otherwise we are our own. */
	if (options->supervisor || listeners_are_passed() || notify_is_wanted())
		return supervise_run(options, err);
	return keeper_run(options, argc, argv, err);
}

int main(int argc, char *argv[])
{
	struct options options = {0};
	struct err err = ERR_NULL;
	int r;

	log_init("sandboxd", LOG_LEVEL_INFO);
	r = options_parse(&options, argc, argv, &err);
	if (r == OPTIONS_E_DONE)
		return EXIT_SUCCESS;
	if (r < 0) {
		log_err(LOG_LEVEL_ERROR, NULL, "command line", &err);
		return 2;
	}
	log_set_level(options.log_level);
	if (geteuid() != 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "sandboxd has to be started as root", "");
		return EXIT_FAILURE;
	}
	log_set_journal(journal_open());
	r = run(&options, argc, argv, &err);
	if (r < 0) {
		log_err(LOG_LEVEL_ERROR, NULL, "service ends", &err);
		return EXIT_FAILURE;
	}
	return r;
}
