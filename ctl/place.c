#include "ctl/place.h"

#include <string.h>

#include "base/str.h"

#include "ctl/resolve.h"

bool place_split(const char *word, struct place *ret_place)
{
	size_t length = strcspn(word, ":/");
	struct place place = {.path = word};

	if (word[length] == ':' && length > 0 &&
	    str_copy_n(place.session, sizeof(place.session), word, length) >= 0)
		place.path = word + length + 1;
	else
		place.session[0] = '\0';
	*ret_place = place;
	return place.session[0] != '\0';
}

int place_resolve(struct client *client, const struct options *options, struct place *place)
{
	static const struct command one = {.words = {WORD_SESSION}};
	char *args[] = {place->session, NULL};
	struct options only = *options;
	struct resolved resolved = {0};
	int r;

	only.args = args;
	only.n_args = 1;
	r = resolve_words(client, &one, &only, &resolved);
	/* An id of its own is shorter. */
	if (r == EXIT_OK && only.args[0] != place->session &&
	    str_copy(place->session, sizeof(place->session), only.args[0]) < 0)
		r = EXIT_FAILED;
	resolved_done(&resolved);
	return r;
}
