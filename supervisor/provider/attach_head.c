#include "supervisor/provider/attach_head.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool is_right(const struct attach_head *head)
{
	static const char *const lines[] = {"HTTP/1.1 101 ", "HTTP/1.1 200 "};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		if (memcmp(head->line, lines[i], strlen(lines[i])) == 0)
			return true;
	}
	return false;
}

int attach_head_take(struct attach_head *head, const char *data, size_t size, size_t *ret_taken)
{
	static const char end[] = "\r\n\r\n";

	*ret_taken = 0;
	while (*ret_taken < size && head->end < strlen(end)) {
		char c = data[(*ret_taken)++];

		if (head->n < sizeof(head->line))
			head->line[head->n] = c;
		if (++head->n > ATTACH_HEAD_MAX)
			return -EPROTO;
		if (c == end[head->end])
			head->end++;
		else
			head->end = c == end[0];
	}
	if (head->end < strlen(end))
		return 0;
	return is_right(head) ? 1 : -EPROTO;
}
