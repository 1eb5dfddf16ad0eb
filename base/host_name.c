#include "base/host_name.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define LABEL_MAX 63

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f');
}

/* "123", "0x7f", "0x": inet_aton and browsers take a name that ends so for an address. */
static bool reads_as_number(const char *label)
{
	bool all_digits = true;
	bool all_hex = label[0] == '0' && label[1] == 'x';

	for (const char *at = label; *at; at++)
		all_digits = all_digits && is_digit(*at);
	for (const char *at = label + 2; all_hex && *at; at++)
		all_hex = is_hex(*at);
	return all_digits || all_hex;
}

/* One label of `name` that ends before `end`. */
static bool label_is_good(const char *name, size_t begin, size_t end)
{
	return end > begin && end - begin <= LABEL_MAX && name[begin] != '-' &&
	       name[end - 1] != '-';
}

int host_name_canonical(const char *text, size_t length, char ret_name[HOST_NAME_BYTES])
{
	char name[HOST_NAME_BYTES];
	size_t label = 0;

	if (length > 0 && text[length - 1] == '.')
		length--;
	if (length == 0 || length >= sizeof(name))
		return -EINVAL;
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		name[i] = c;
		if (c == '.') {
			if (!label_is_good(name, label, i))
				return -EINVAL;
			label = i + 1;
		} else if (!is_digit(c) && c != '-' && (c < 'a' || c > 'z')) {
			return -EINVAL;
		}
	}
	name[length] = '\0';
	if (!label_is_good(name, label, length) || reads_as_number(name + label))
		return -EINVAL;
	memcpy(ret_name, name, length + 1);
	return 0;
}
