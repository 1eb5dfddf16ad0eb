#include "jail/loader/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/str.h"

static struct loader_record report_new(uint32_t type, const char *name)
{
	struct loader_record record = {.magic = LOADER_MAGIC, .type = type};
	size_t length = name ? strlen(name) : 0;

	/* The name of a file may be longer than a component's may: it is cut, never refused. */
	if (length >= sizeof(record.name))
		length = sizeof(record.name) - 1;
	if (length > 0)
		memcpy(record.name, name, length);
	return record;
}

static uint32_t report_number(uint64_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

int report_problem(struct report *report, uint64_t line, uint64_t column, const char *format, ...)
{
	struct loader_record record = report_new(LOADER_PROBLEM, report->name);
	char text[LOADER_TEXT_BYTES * 2];
	va_list arguments;

	if (report->n_problems >= REPORT_FILE_MAX_PROBLEMS)
		return 0;
	report->n_problems++;
	va_start(arguments, format);
	/* A text that is too long is cut. */
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	(void)str_escape(record.text, sizeof(record.text), text, strlen(text), false);
	record.line = report_number(line);
	record.column = report_number(column);
	return buf_append(&report->records, &record, sizeof(record));
}

int report_record(struct report *report, uint32_t type, const char *name, uint32_t n_documents)
{
	struct loader_record record = report_new(type, name);

	record.n_documents = n_documents;
	return buf_append(&report->records, &record, sizeof(record));
}

int report_flush(struct report *report, int fd)
{
	int r;

	r = io_write_all(fd, report->records.data, report->records.size);
	buf_reset(&report->records);
	return r;
}
