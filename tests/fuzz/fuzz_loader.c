/*
 * The YAML checks of sandbox-loader: whatever the bytes, the parse ends, and every record is one
 * that a reader of include/sandboxd/loader.h accepts.
 */
#include <string.h>

#include "base/buf.h"
#include "base/err.h"

#include "jail/loader/document.h"
#include "jail/loader/report.h"
#include "tests/fuzz/fuzz.h"

#define MAX_RECORDS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct report report = {
		.records = BUF_NULL(MAX_RECORDS * sizeof(struct loader_record)),
		.name = "fuzz.yaml",
	};
	uint32_t n_documents = 0;

	ASSERT(document_check(&report, data, size, &n_documents) == 0);
	ASSERT(report.n_problems <= REPORT_FILE_MAX_PROBLEMS);
	ASSERT(report.n_problems > 0 || n_documents > 0);
	ASSERT(report.records.size == report.n_problems * sizeof(struct loader_record));
	for (size_t i = 0; i < report.n_problems; i++) {
		struct loader_record record;

		memcpy(&record, report.records.data + i * sizeof(record), sizeof(record));
		ASSERT(record.magic == LOADER_MAGIC && record.type == LOADER_PROBLEM);
		ASSERT(record.text[0] != '\0' && memchr(record.text, '\0', sizeof(record.text)));
	}
	buf_done(&report.records);
	return 0;
}
