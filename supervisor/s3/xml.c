#include "supervisor/s3/xml.h"

#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <string.h>

struct reader {
	XML_Parser parser;
	xml_seen seen;
	void *userdata;
	size_t n;
	char text[XML_TEXT_BYTES];
};

static void on_start(void *userdata, const XML_Char *name, const XML_Char **attributes)
{
	struct reader *reader = userdata;

	(void)name;
	(void)attributes;
	reader->n = 0;
}

static void on_text(void *userdata, const XML_Char *text, int length)
{
	struct reader *reader = userdata;
	size_t n = (size_t)length;

	if (n > sizeof(reader->text) - 1 - reader->n)
		n = sizeof(reader->text) - 1 - reader->n;
	memcpy(reader->text + reader->n, text, n);
	reader->n += n;
}

static void on_end(void *userdata, const XML_Char *name)
{
	struct reader *reader = userdata;
	const char *colon = strchr(name, ':');

	reader->text[reader->n] = '\0';
	reader->seen(reader->userdata, colon ? colon + 1 : name, reader->text);
	reader->n = 0;
}

/* No answer has one; it would say what entities mean, over and over. */
static void on_doctype(void *userdata, const XML_Char *name, const XML_Char *system,
		       const XML_Char *public, int has_internal_subset)
{
	const struct reader *reader = userdata;

	(void)name;
	(void)system;
	(void)public;
	(void)has_internal_subset;
	(void)XML_StopParser(reader->parser, XML_FALSE);
}

int xml_read(const void *data, size_t size, xml_seen seen, void *userdata)
{
	struct reader reader = {.seen = seen, .userdata = userdata};
	XML_Parser parser = XML_ParserCreate(NULL);
	enum XML_Status status;

	if (!parser)
		return -ENOMEM;
	reader.parser = parser;
	XML_SetUserData(parser, &reader);
	XML_SetStartDoctypeDeclHandler(parser, on_doctype);
	XML_SetElementHandler(parser, on_start, on_end);
	XML_SetCharacterDataHandler(parser, on_text);
	status = size > INT_MAX ? XML_STATUS_ERROR : XML_Parse(parser, data, (int)size, 1);
	XML_ParserFree(parser);
	return status == XML_STATUS_OK ? 0 : -EBADMSG;
}
