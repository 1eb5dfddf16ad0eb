/* A question cannot be taken back (base/name_lookup.h): a cancelled one is answered to nobody. */
#include "supervisor/api/names.h"

#include <errno.h>
#include <stdlib.h>

#include "base/name_lookup.h"
#include "base/socket_address.h"

#define TIMEOUT_MS 1500 /* of one try; the whole is shorter than a connection may take */

struct names {
	struct name_lookup *lookup;
	sd_event_source *source;
};

struct names_question {
	struct names_query *query; /* NULL: nobody wants to know any more */
	bool is_told;              /* names_ask has returned: the answer is told */
};

static int on_descriptor(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	(void)source;
	(void)fd;
	(void)events;
	names_process(userdata);
	return 0;
}

void names_process(struct names *names)
{
	name_lookup_process(names->lookup);
}

int names_watch(struct names *names, sd_event *event)
{
	int r = sd_event_add_io(event, &names->source, names_fd(names), EPOLLIN, on_descriptor,
				names);

	return r < 0 ? r : 0;
}

int names_fd(const struct names *names)
{
	return name_lookup_fd(names->lookup);
}

static void add_node(struct names_answer *answer, const struct ares_addrinfo_node *node)
{
	if (answer->n < NAMES_ADDRESSES_MAX &&
	    socket_address_read(node->ai_addr, &answer->address[answer->n]))
		answer->n++;
}

static void on_answer(void *userdata, int status, int timeouts, struct ares_addrinfo *info)
{
	struct names_question *question = userdata;
	struct names_query *query = question->query;
	bool is_told = question->is_told;

	(void)timeouts;
	if (query && status == ARES_SUCCESS && info)
		for (const struct ares_addrinfo_node *at = info->nodes; at; at = at->ai_next)
			add_node(&query->answer, at);
	if (info)
		ares_freeaddrinfo(info);
	free(question);
	if (!query)
		return;
	query->question = NULL;
	if (is_told)
		query->done(query->userdata);
}

int names_ask(struct names *names, const char *name, struct names_query *query)
{
	struct names_question *question = calloc(1, sizeof(*question));

	query->answer.n = 0;
	if (!question)
		return -ENOMEM;
	question->query = query;
	query->question = question;
	/* May answer before it returns, from the hosts file. */
	name_lookup_ask(names->lookup, name, on_answer, question);
	if (!query->question)
		return 1;
	query->question->is_told = true;
	return 0;
}

void names_cancel(struct names_query *query)
{
	if (query->question)
		query->question->query = NULL;
	query->question = NULL;
}

int names_new(struct names **ret_names)
{
	struct names *names = calloc(1, sizeof(*names));
	int r = names ? name_lookup_new(TIMEOUT_MS, &names->lookup) : -ENOMEM;

	if (r < 0) {
		free(names);
		return r;
	}
	*ret_names = names;
	return 0;
}

struct names *names_free(struct names *names)
{
	if (!names)
		return NULL;
	names->source = sd_event_source_disable_unref(names->source);
	names->lookup = name_lookup_free(names->lookup);
	free(names);
	return NULL;
}
