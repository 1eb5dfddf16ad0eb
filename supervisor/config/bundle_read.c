#include "supervisor/config/bundle_read.h"

#include <errno.h>
#include <string.h>

int bundle_read(const char *data, size_t size, struct config_text ret_texts[])
{
	const struct config_bundle *head = (const void *)data; /* malloc's alignment */
	size_t at = sizeof(*head);

	if (size < sizeof(*head) || head->magic != CONFIG_BUNDLE_MAGIC) {
		ret_texts[0] = (struct config_text){.text = data, .size = size};
		return 1;
	}
	if (head->n_files > CONFIG_FILES_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < head->n_files; i++) {
		const struct config_bundle_file *file = &head->file[i];

		if (!memchr(file->name, '\0', sizeof(file->name)) || file->bytes > size - at)
			return -EBADMSG;
		ret_texts[i] = (struct config_text){
			.name = file->name,
			.text = data + at,
			.size = file->bytes,
			.is_readable = file->is_readable != 0,
		};
		at += file->bytes;
	}
	return at == size ? (int)head->n_files : -EBADMSG;
}
