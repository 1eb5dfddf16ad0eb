/*
 * sandboxd-config: the one process that parses the configuration file. Started by the supervisor
 * with the file as standard input, it writes one struct config_answer to standard output and exits;
 * or it complains on standard error, never with a value, and exits 1.
 *
 * For people: --table prints every option for the documentation, --check reads a file from standard
 * input and only complains. Both run without the supervisor and so without its policy.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/str.h"

#include "policy/confine_worker.h"
#include "sandboxd/config.h"
#include "sandboxd/worker.h"
#include "supervisor/config/config_parse.h"
#include "supervisor/config/option_table.h"

/* Standard input into *ret_answer. Complaints go to standard error. */
static int read_config(struct config_answer *ret_answer)
{
	AUTO_FREE char *text = NULL;
	struct buf complaints = BUF_NULL(CONFIG_ERROR_MAX_BYTES - 256);
	size_t size;
	int r;

	r = io_read_file(STDIN_FILENO, CONFIG_FILE_MAX_BYTES, &text, &size);
	if (r < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "configuration cannot be read", "errno=%d", -r);
		return r;
	}
	r = config_parse(text, size, ret_answer, &complaints);
	/* Complaints that cannot be written change nothing: the status says that there were some.
	 */
	if (complaints.size > 0 &&
	    io_write_all(STDERR_FILENO, complaints.data, complaints.size) < 0)
		r = -EINVAL;
	buf_done(&complaints);
	return r;
}

int main(int argc, char *argv[])
{
	static struct config_answer answer; /* big for a stack */
	bool check_only = argc == 2 && str_equal(argv[1], "--check");

	log_init("sandboxd-config", LOG_LEVEL_INFO);
	if (argc == 2 && str_equal(argv[1], "--table")) {
		option_table_print(stdout);
		return EXIT_SUCCESS;
	}
	if (argc > 1 && !check_only) {
		log_line(LOG_LEVEL_ERROR, NULL, "usage: sandboxd-config [--table | --check < FILE]",
			 "");
		return 2;
	}
	if (!check_only && confine_fileless_worker(WORKER_FD_POLICY, "worker-config") < 0)
		return EXIT_FAILURE;
	if (read_config(&answer) < 0)
		return EXIT_FAILURE;
	if (!check_only && io_write_all(STDOUT_FILENO, &answer, sizeof(answer)) < 0)
		return EXIT_FAILURE;
	return EXIT_SUCCESS;
}
