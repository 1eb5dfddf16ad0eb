#include "supervisor/api/http/openapi.h"

#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/str.h"

#include "sandboxd/api.h"
#include "supervisor/api/http/auth.h"
#include "supervisor/api/http/features.h"
#include "supervisor/api/http/routes.h"
#include "supervisor/api/http/runtime_errors.h"

struct schema_row {
	const char *name;
	const char *json; /* a JSON schema */
};

#define STRING   "{\"type\":\"string\"}"
#define NULLABLE "{\"type\":[\"string\",\"null\"]}"
#define INTEGER  "{\"type\":\"integer\"}"
#define BOOLEAN  "{\"type\":\"boolean\"}"
#define OBJECT   "{\"type\":\"object\"}"
#define TEXTS    "{\"type\":\"object\",\"additionalProperties\":" STRING "}"
#define STRINGS  "{\"type\":\"array\",\"items\":" STRING "}"
#define ALLOW    "\"properties\":{\"allow\":" STRINGS "}"
#define RULES    "{\"type\":\"object\"," ALLOW "}"

static const struct schema_row schemas[] = {
	{"SessionCreate",
	 "{\"type\":\"object\",\"properties\":{\"ttl_minutes\":{\"type\":\"integer\",\"minimum\":1,"
	 "\"maximum\":720,\"default\":60},\"env_overrides\":" TEXTS ",\"env\":" TEXTS
	 ",\"secrets\":" STRINGS ",\"name\":" NULLABLE ",\"egress\":" RULES "}}"                                           },
	{"Session",
	 "{\"type\":\"object\",\"properties\":{\"id\":" STRING ",\"owner\":" NULLABLE
	 ",\"workspace_id\":" NULLABLE ",\"project_id\":" NULLABLE ",\"created_at\":" STRING
	 ",\"expires_at\":" STRING ",\"components\":" STRINGS
	 ",\"asset_keys\":{\"type\":\"array\",\"items\":" STRINGS "},\"last_run_id\":" NULLABLE
	 ",\"log_summary\":{\"type\":\"array\",\"items\":" OBJECT "},\"status\":" STRING
	 ",\"sandbox\":" OBJECT "}}"										       },
	{"SessionTtl",
	 "{\"type\":\"object\",\"required\":[\"ttl_minutes\"],\"properties\":{\"ttl_minutes\":"
	 "{\"type\":\"integer\",\"minimum\":1,\"maximum\":720}}}"                                                          },
	{"SessionList",
	 "{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Session\"}}"                                      },
	{"SessionDeleted",        "{\"type\":\"object\",\"properties\":{\"session_id\":" STRING
			   ",\"redis_keys_dropped\":" INTEGER ",\"folder_removed\":" BOOLEAN "}}"},
	{"ComponentWrite",
	 "{\"type\":\"object\",\"required\":[\"name\",\"body\"],\"properties\":{\"name\":" STRING
	 ",\"body\":" STRING "}}"											  },
	{"AirbyteWrite",
	 "{\"type\":\"object\",\"required\":[\"airbyte_connection_id\"],\"properties\":"
	 "{\"airbyte_connection_id\":" STRING "}}"									 },
	{"AirbytePut",
	 "{\"type\":\"object\",\"required\":[\"name\"],\"properties\":{\"name\":" STRING
	 ",\"source_id\":" NULLABLE ",\"destination_id\":" NULLABLE ",\"streams\":" STRINGS "}}"                           },
	{"AirbyteConnection",     "{\"type\":\"object\",\"properties\":{\"id\":" STRING
			      ",\"name\":" STRING ",\"airbyte_connection_id\":" NULLABLE "}}" },
	{"AirbyteConnectionList",
	 "{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/AirbyteConnection\"}}"                            },
	{"TaskAccepted",          "{\"type\":\"object\",\"properties\":{\"task_id\":" STRING
			 ",\"status\":" STRING ",\"stream_url\":" STRING "}}"                      },
	{"Task",
	 "{\"type\":\"object\",\"properties\":{\"task_id\":" STRING ",\"session_id\":" STRING
	 ",\"status\":" STRING ",\"created_at\":" NULLABLE ",\"started_at\":" NULLABLE
	 ",\"ended_at\":" NULLABLE ",\"seq\":" INTEGER ",\"stream_url\":" STRING "}}"                                      },
	{"TaskList",              "{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Task\"}}"                },
	{"Stats",                 "{\"type\":\"object\",\"properties\":{\"session_id\":" STRING
		  ",\"memory_bytes\":" INTEGER ",\"memory_peak_bytes\":" INTEGER
		  ",\"cpu_us\":" INTEGER ",\"pids\":" INTEGER ",\"frozen\":" BOOLEAN
		  ",\"oom_kills\":" INTEGER ",\"disk\":{\"type\":[\"object\",\"null\"]}}}"                },
	{"EgressRules",           "{\"type\":\"object\",\"required\":[\"allow\"]," ALLOW "}"                               },
	{"Egress",
	 "{\"type\":\"object\",\"properties\":{\"session_id\":" STRING ",\"in_force\":" BOOLEAN
	 ",\"rules\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/EgressRule\"}}"
	 ",\"production_reachable_by_credentials\":" STRINGS ",\"limits\":{\"type\":\"object\","
	 "\"properties\":{\"connections\":" INTEGER ",\"connects_per_second\":" INTEGER
	 ",\"bytes_per_second\":" INTEGER "}}}}"									   },
	{"EgressRule",            "{\"type\":\"object\",\"properties\":{\"label\":" STRING
		       ",\"action\":{\"enum\":[\"allow\","
		       "\"allow_paths\",\"refuse\",\"reroute\"]},\"host\":" NULLABLE
		       ",\"ports\":" NULLABLE ",\"counters\":" OBJECT "}}"                           },
	{"Denials",
	 "{\"type\":\"object\",\"properties\":{\"session_id\":" STRING
	 ",\"denials\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Denial\"}}"
	 ",\"counts\":{\"type\":\"object\",\"additionalProperties\":" INTEGER
	 "},\"records_dropped\":" INTEGER "}}"									     },
	{"Denial",
	 "{\"type\":\"object\",\"properties\":{\"time\":" STRING ",\"kind\":{\"enum\":"
	 "[\"syscall\",\"file\",\"network\",\"memory\",\"pids\",\"disk\",\"time\",\"output\"]},\"what\":" STRING
	 ",\"program\":{\"type\":[\"object\",\"null\"]},\"rule\":" STRING ",\"source\":" STRING
	 ",\"advice\":" STRING ",\"count\":" INTEGER "}}"								  },
	{"Frame",
	 "{\"type\":\"object\",\"properties\":{\"task_id\":" STRING ",\"stage\":" STRING
	 ",\"message\":" STRING ",\"timestamp\":{\"type\":\"number\"},\"seq\":" INTEGER "}}"                               },
	{"JanitorRun",
	 "{\"type\":\"object\",\"properties\":{\"dropped\":" STRINGS ",\"count\":" INTEGER "}}"                            },
	{"SandboxCreate",
	 "{\"type\":\"object\",\"properties\":{\"profile\":" STRING ",\"env\":" TEXTS
	 ",\"envs\":" TEXTS ",\"secrets\":" STRINGS ",\"ttl\":" INTEGER ",\"name\":" NULLABLE
	 ",\"egress\":" RULES ",\"organization_uuid\":" NULLABLE ",\"project_uuid\":" NULLABLE
	 ",\"timeout_ms\":" INTEGER ",\"metadata\":" TEXTS ",\"idempotency_key\":" NULLABLE
	 ",\"template\":" NULLABLE ",\"provider\":" NULLABLE
	 ",\"workspace\":{\"type\":\"object\",\"required\":[\"include\"],\"properties\":{\"include\":" STRINGS
	 ",\"exclude\":" STRINGS "}}}}"										    },
	{"SandboxTimeout",
	 "{\"type\":\"object\",\"properties\":{\"timeout_ms\":" INTEGER ",\"ttl\":" INTEGER "}}"                           },
	{"SandboxEvent",          "{\"type\":\"object\",\"properties\":{\"seq\":" INTEGER ",\"type\":" STRING
			 ",\"time\":" STRING ",\"reason\":" STRING "}}"                            },
	{"SandboxList",
	 "{\"type\":\"object\",\"properties\":{\"sandboxes\":{\"type\":\"array\",\"items\":"
	 "{\"$ref\":\"#/components/schemas/Sandbox\"}},\"next\":" NULLABLE "}}"                                            },
	{"Sandbox",               "{\"type\":\"object\",\"properties\":{\"sandbox_uuid\":" STRING
		    ",\"status\":" STRING ",\"profile\":" STRING ",\"created_at\":" STRING
		    ",\"expires_at\":" STRING ",\"persisted\":" BOOLEAN ",\"degraded\":" BOOLEAN
		    ",\"limits_effective\":" OBJECT ",\"host\":" STRING ",\"name\":" NULLABLE
		    ",\"organization_uuid\":" NULLABLE ",\"project_uuid\":" NULLABLE
		    ",\"metadata\":" TEXTS ",\"workspace\":{\"type\":[\"object\",\"null\"]}"
		    ",\"generation\":" INTEGER ",\"durable\":" BOOLEAN ",\"durable_error\":" OBJECT
		    ",\"template\":" STRING ",\"provider\":" STRING "}}"                                },
	{"GitCredentials",
	 "{\"type\":\"object\",\"required\":[\"username\",\"password\"],\"properties\":{\"username\":" STRING
	 ",\"password\":" STRING ",\"host\":" STRING "}}"								  },
	{"GitClone",
	 "{\"type\":\"object\",\"required\":[\"path\",\"url\"],\"properties\":{\"path\":" STRING
	 ",\"branch\":" STRING ",\"depth\":" INTEGER ",\"url\":" STRING
	 ",\"credentials\":{\"$ref\":\"#/components/schemas/GitCredentials\"},\"ca_certificates\":" STRING
	 ",\"timeout_ms\":" INTEGER "}}"										   },
	{"GitFetch",
	 "{\"type\":\"object\",\"required\":[\"path\"],\"properties\":{\"path\":" STRING
	 ",\"remote\":" STRING ",\"branch\":" STRING ",\"depth\":" INTEGER ",\"prune\":" BOOLEAN
	 ",\"url\":" STRING
	 ",\"credentials\":{\"$ref\":\"#/components/schemas/GitCredentials\"},\"ca_certificates\":" STRING
	 ",\"timeout_ms\":" INTEGER "}}"										   },
	{"GitPull",
	 "{\"type\":\"object\",\"required\":[\"path\"],\"properties\":{\"path\":" STRING
	 ",\"remote\":" STRING ",\"branch\":" STRING ",\"url\":" STRING
	 ",\"credentials\":{\"$ref\":\"#/components/schemas/GitCredentials\"},\"ca_certificates\":" STRING
	 ",\"timeout_ms\":" INTEGER "}}"										   },
	{"GitPush",
	 "{\"type\":\"object\",\"required\":[\"path\",\"branch\"],\"properties\":{\"path\":" STRING
	 ",\"remote\":" STRING ",\"branch\":" STRING ",\"set_upstream\":" BOOLEAN
	 ",\"force\":" BOOLEAN ",\"url\":" STRING
	 ",\"credentials\":{\"$ref\":\"#/components/schemas/GitCredentials\"},\"ca_certificates\":" STRING
	 ",\"timeout_ms\":" INTEGER "}}"										   },
	{"GitBranch",
	 "{\"type\":\"object\",\"required\":[\"path\",\"branch\"],\"properties\":{\"path\":" STRING
	 ",\"branch\":" STRING ",\"ref\":" STRING "}}"								     },
	{"GitCheckout",
	 "{\"type\":\"object\",\"required\":[\"path\",\"ref\"],\"properties\":{\"path\":" STRING
	 ",\"ref\":" STRING "}}"											   },
	{"GitAdd",                "{\"type\":\"object\",\"required\":[\"path\"],\"properties\":{\"path\":" STRING
		   ",\"paths\":" STRINGS ",\"all\":" BOOLEAN "}}"                                        },
	{"GitCommit",
	 "{\"type\":\"object\",\"required\":[\"path\",\"message\",\"author_name\",\"author_email\"],\"properties\":{\"path\":" STRING
	 ",\"message\":" STRING ",\"author_name\":" STRING ",\"author_email\":" STRING
	 ",\"allow_empty\":" BOOLEAN "}}"										  },
	{"GitCommitted",          "{\"type\":\"object\",\"properties\":{\"commit\":" STRING
			 ",\"parents\":" STRINGS ",\"author\":" OBJECT ",\"committer\":" OBJECT
			 ",\"subject\":" STRING ",\"body\":" STRING "}}"                           },
	{"GitLog",
	 "{\"type\":\"object\",\"properties\":{\"commits\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/GitCommitted\"}},\"truncated\":" BOOLEAN
	 "}}"													      },
	{"GitPushed",             "{\"type\":\"object\",\"properties\":{\"branch\":" STRING
		      ",\"result\":{\"enum\":[\"new\",\"updated\",\"forced\",\"up_to_date\"]}}}"      },
	{"GitStatus",
	 "{\"type\":\"object\",\"properties\":{\"current_branch\":" NULLABLE ",\"head\":" NULLABLE
	 ",\"upstream\":" NULLABLE
	 ",\"ahead\":{\"type\":[\"integer\",\"null\"]},\"behind\":{\"type\":[\"integer\",\"null\"]},\"has_changes\":" BOOLEAN
	 ",\"truncated\":" BOOLEAN ",\"files\":{\"type\":\"array\",\"items\":" OBJECT "}}}"                                },
	{"GitDiff",
	 "{\"type\":\"object\",\"properties\":{\"files\":{\"type\":\"array\",\"items\":" OBJECT
	 "},\"diff\":" STRING ",\"truncated\":" BOOLEAN "}}"							       },
	{"SandboxResume",
	 "{\"type\":\"object\",\"properties\":{\"egress\":" OBJECT ",\"envs\":" TEXTS "}}"                                 },
	{"SandboxSuspend",
	 "{\"type\":\"object\",\"properties\":{\"signal_commands\":{\"enum\":[\"none\",\"foreground\",\"all\"]}"
	 ",\"grace_ms\":" INTEGER
	 ",\"before\":{\"$ref\":\"#/components/schemas/CommandRun\"},\"remove\":" STRINGS
	 ",\"durable\":{\"enum\":[\"background\",\"wait\",\"never\"]}}}"                                                   },
	{"Suspension",
	 "{\"allOf\":[{\"$ref\":\"#/components/schemas/Sandbox\"},{\"type\":\"object\","
	 "\"properties\":{\"resumed\":{\"enum\":[\"memory\",\"snapshot\",null]}}}]}"                                       },
	{"Snapshot",              "{\"type\":\"object\",\"properties\":{\"snapshot_id\":" STRING
		     ",\"created_at\":" STRING ",\"bytes\":" INTEGER ",\"content_bytes\":" INTEGER
		     ",\"entries\":" INTEGER ",\"left_out\":" INTEGER ",\"changed\":" INTEGER
		     ",\"digest\":" STRING ",\"include\":" STRINGS ",\"exclude\":" STRINGS
		     ",\"encrypted\":" BOOLEAN ",\"key\":" STRING "}}"                                 },
	{"SnapshotList",
	 "{\"type\":\"object\",\"properties\":{\"snapshots\":{\"type\":\"array\",\"items\":"
	 "{\"$ref\":\"#/components/schemas/Snapshot\"}}}}"								 },
	{"SnapshotDeleted",       "{\"type\":\"object\",\"properties\":{\"snapshot_id\":" STRING
			    ",\"deleted\":" BOOLEAN "}}"                                        },
	{"SnapshotRestore",
	 "{\"type\":\"object\",\"required\":[\"snapshot_id\"],\"properties\":{\"snapshot_id\":" STRING
	 ",\"sandbox_uuid\":" NULLABLE ",\"replace\":" BOOLEAN "}}"                                                        },
	{"SnapshotRestored",      "{\"type\":\"object\",\"properties\":{\"snapshot_id\":" STRING
			     ",\"content_bytes\":" INTEGER ",\"entries\":" INTEGER "}}"        },
	{"CommandRun",            "{\"type\":\"object\",\"properties\":{\"argv\":" STRINGS ",\"cmd\":" STRING
		       ",\"cwd\":" STRING ",\"envs\":" TEXTS ",\"timeout_ms\":" INTEGER
		       ",\"stdin\":" STRING ",\"stdin_open\":" BOOLEAN
		       ",\"user\":{\"enum\":[\"user\",\"root\"]},\"background\":" BOOLEAN
		       ",\"hold_output\":" BOOLEAN
		       ",\"on_disconnect\":{\"enum\":[\"kill\",\"keep\"]},\"max_output\":" INTEGER
		       ",\"pty\":{\"$ref\":\"#/components/schemas/CommandSize\"}}}"                  },
	{"CommandEvent",
	 "{\"type\":\"object\",\"required\":[\"type\"],\"properties\":{\"type\":{\"enum\":"
	 "[\"start\",\"stdout\",\"stderr\",\"dropped\",\"exit\",\"error\"]},\"seq\":" INTEGER
	 ",\"pid\":" INTEGER ",\"command_id\":" STRING ",\"text\":" STRING
	 ",\"data\":{\"type\":\"string\",\"contentEncoding\":\"base64\"},"
	 "\"code\":{},\"signal\":{\"type\":[\"integer\",\"null\"]},\"timed_out\":" BOOLEAN
	 ",\"truncated\":" BOOLEAN ",\"usage\":" OBJECT "}}"							       },
	{"Command",
	 "{\"type\":\"object\",\"properties\":{\"command_id\":" STRING
	 ",\"status\":{\"enum\":[\"starting\",\"running\",\"exited\",\"failed\",\"lost\"]}"
	 ",\"pid\":{\"type\":[\"integer\",\"null\"]},\"cmd\":" STRING ",\"background\":" BOOLEAN
	 ",\"stdin_open\":" BOOLEAN ",\"pty\":{},\"created_at\":" NULLABLE ",\"ended_at\":" NULLABLE
	 ",\"seq\":" INTEGER ",\"kept_bytes\":" INTEGER ",\"output_dropped\":" BOOLEAN
	 ",\"exit\":" OBJECT ",\"error\":" OBJECT "}}"								     },
	{"CommandList",
	 "{\"type\":\"object\",\"properties\":{\"commands\":{\"type\":\"array\",\"items\":"
	 "{\"$ref\":\"#/components/schemas/Command\"}}}}"								  },
	{"CommandStdin",
	 "{\"type\":\"object\",\"properties\":{\"text\":" STRING
	 ",\"data\":{\"type\":\"string\",\"contentEncoding\":\"base64\"},\"eof\":" BOOLEAN "}}"                            },
	{"CommandTaken",          "{\"type\":\"object\",\"properties\":{\"accepted_bytes\":" INTEGER
			 ",\"pending_bytes\":" INTEGER ",\"stdin_open\":" BOOLEAN "}}"             },
	{"CommandSignal",
	 "{\"type\":\"object\",\"required\":[\"signal\"],\"properties\":{\"signal\":{\"type\":"
	 "[\"string\",\"integer\"]},\"scope\":{\"enum\":[\"group\",\"leader\",\"tree\"]}}}"                                },
	{"CommandSize",
	 "{\"type\":\"object\",\"required\":[\"rows\",\"cols\"],\"properties\":{\"rows\":" INTEGER
	 ",\"cols\":" INTEGER "}}"											 },
	{"File",		  "{\"type\":\"object\",\"properties\":{\"path\":" STRING ",\"name\":" STRING
		 ",\"name_base64\":" STRING
		 ",\"type\":{\"enum\":[\"file\",\"folder\",\"link\",\"other\"]},\"size\":" INTEGER
		 ",\"mode\":" STRING ",\"uid\":" INTEGER ",\"gid\":" INTEGER
		 ",\"modified_at\":" STRING ",\"target\":" STRING "}}"                                     },
	{"FileList",
	 "{\"type\":\"object\",\"properties\":{\"path\":" STRING ",\"truncated\":" BOOLEAN
	 ",\"entries\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/File\"}}}}"                          },
	{"FileEvent",             "{\"type\":\"object\",\"properties\":{\"type\":" STRING ",\"path\":" STRING
		      ",\"path_base64\":" STRING ",\"from\":" STRING ",\"from_base64\":" STRING
		      ",\"is_folder\":" BOOLEAN ",\"code\":" STRING ",\"detail\":" STRING "}}"        },
	{"FileBytes",             "{\"type\":\"string\",\"format\":\"binary\"}"                                            },
	{"FileRemoved",
	 "{\"type\":\"object\",\"properties\":{\"path\":" STRING ",\"removed\":" BOOLEAN "}}"                              },
	{"FileMkdir",
	 "{\"type\":\"object\",\"required\":[\"path\"],\"properties\":{\"path\":" STRING
	 ",\"mode\":" STRING "}}"											  },
	{"FileMove",
	 "{\"type\":\"object\",\"required\":[\"from\",\"to\"],\"properties\":{\"from\":" STRING
	 ",\"to\":" STRING ",\"replace\":" BOOLEAN "}}"								    },
	{"FileCopy",
	 "{\"type\":\"object\",\"required\":[\"from\",\"to\"],\"properties\":{\"from\":" STRING
	 ",\"to\":" STRING ",\"replace\":" BOOLEAN ",\"recursive\":" BOOLEAN "}}"                                          },
	{"FileChmod",
	 "{\"type\":\"object\",\"required\":[\"path\",\"mode\"],\"properties\":{\"path\":" STRING
	 ",\"mode\":" STRING "}}"											  },
	{"Proof",                 OBJECT										   },
	{"Trace",                 OBJECT										   },
	{"Capabilities",
	 "{\"type\":\"object\",\"properties\":{\"api_version\":" STRING ",\"version\":" STRING
	 ",\"max_sessions\":" INTEGER ",\"profiles\":{\"type\":\"array\",\"items\":" OBJECT
	 "},\"endpoints\":" STRINGS ",\"providers\":" OBJECT
	 ",\"store\":{\"enum\":[\"sqlite\",\"postgresql\"]},\"templates\":" OBJECT
	 ",\"features\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}"                                            },
	{"Quota",
	 "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"object\",\"additionalProperties\":"
	 "{\"type\":\"object\",\"properties\":{\"limit\":{\"type\":[\"integer\",\"null\"]},\"used\":" INTEGER
	 "}}}}"													    },
	{"ConfigState",
	 "{\"type\":\"object\",\"properties\":{\"generation\":" INTEGER ",\"at\":" STRING
	 ",\"refused\":" BOOLEAN ",\"text\":" STRING ",\"needs_restart\":" STRINGS
	 ",\"provider\":{\"type\":\"object\",\"properties\":{\"name\":" STRING ",\"from\":" STRING
	 "}}"
	 ",\"production\":{\"type\":\"object\",\"properties\":{\"known_by_name_only\":" STRINGS
	 ",\"reachable_by_credentials\":" STRINGS "}},\"snapshot_keys\":" OBJECT
	 ",\"snapshot_store\":" OBJECT "}}"										},
	{"LogLevel",
	 "{\"type\":\"object\",\"required\":[\"level\"],\"properties\":{\"level\":{\"enum\":"
	 "[\"error\",\"warning\",\"info\",\"debug\"]}}}"								   },
	{"Status",                "{\"type\":\"object\",\"properties\":{\"status\":" STRING "}}"                           },
	{"Error",                 "{\"type\":\"object\",\"properties\":{\"detail\":{},\"code\":" STRING
		  ",\"retryable\":" BOOLEAN "}}"							  },
};

/* Which there are the routes say. */
static void add_features(const json_t *capabilities)
{
	const json_t *properties = json_object_get(capabilities, "properties");
	json_t *items = json_object_get(json_object_get(properties, "features"), "items");

	(void)json_object_set_new(items, "enum", features_list());
}

static json_t *make_schemas(void)
{
	json_t *all = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(schemas); i++) {
		json_t *schema = NULL;
		const char *reason;

		if (doc_parse(schemas[i].json, strlen(schemas[i].json), &schema, &reason) < 0)
			continue; /* the unit test looks for each */
		(void)json_object_set_new(all, schemas[i].name, schema);
	}
	add_features(json_object_get(all, "Capabilities"));
	return all;
}

static json_t *schema_reference(const char *name)
{
	char text[96];

	if (str_format(text, sizeof(text), "#/components/schemas/%s", name) < 0)
		return json_null();
	return json_pack("{s:s}", "$ref", text);
}

static void add_parameter(json_t *parameters, const char *name, size_t length, const char *in)
{
	char text[32];

	if (str_copy_n(text, sizeof(text), name, length) < 0)
		return;
	(void)json_array_append_new(parameters,
				    json_pack("{s:s, s:s, s:b, s:{s:s}}", "name", text, "in", in,
					      "required", str_equal(in, "path"), "schema", "type",
					      "string"));
}

static json_t *make_parameters(const struct route *route)
{
	json_t *parameters = json_array();
	const char *at = route->parameter;

	for (const char *open = strchr(route->pattern, '{'); open; open = strchr(open + 1, '{'))
		add_parameter(parameters, open + 1, strcspn(open + 1, "}"), "path");
	while (at && *at) {
		size_t length = strcspn(at, ",");

		add_parameter(parameters, at, length, "query");
		at += length;
		if (*at == ',')
			at++;
	}
	return parameters;
}

static bool is_bytes(const char *schema)
{
	return schema && str_equal(schema, "FileBytes");
}

static const char *media_type(const struct route *route)
{
	if (is_bytes(route->response))
		return "application/octet-stream";
	if (route->body == ROUTE_BODY_STREAM)
		return "application/json";
	if (!(route->flags & ROUTE_STREAM))
		return "application/json";
	return route->method == ROUTE_POST ? "application/x-ndjson" : "text/event-stream";
}

static json_t *make_scopes(const struct route *route)
{
	json_t *scopes = json_array();

	for (uint32_t bit = 1; bit <= AUTH_ADMIN; bit <<= 1)
		if (route->scopes & bit)
			(void)json_array_append_new(
				scopes, json_string(auth_scope_name((enum auth_scope)bit)));
	return scopes;
}

static json_t *make_operation(const struct route *route)
{
	json_t *operation = json_pack("{s:s}", "summary", route->summary);
	json_t *success = json_pack("{s:s}", "description", route->summary);
	json_t *responses = json_object();
	char status[8];

	if (route->response)
		(void)json_object_set_new(success, "content",
					  json_pack("{s:{s:o}}", media_type(route), "schema",
						    schema_reference(route->response)));
	if (str_format(status, sizeof(status), "%d", route->success) >= 0)
		(void)json_object_set_new(responses, status, success);
	else
		json_decref(success);
	(void)json_object_set_new(responses, "default",
				  json_pack("{s:s, s:{s:{s:o}}}", "description", "Error", "content",
					    "application/json", "schema",
					    schema_reference("Error")));
	(void)json_object_set_new(operation, "responses", responses);
	(void)json_object_set_new(operation, "parameters", make_parameters(route));
	(void)json_object_set_new(operation, "x-scopes", make_scopes(route));
	if (route->request)
		(void)json_object_set_new(operation, "requestBody",
					  json_pack("{s:{s:{s:o}}}", "content",
						    is_bytes(route->request)
							    ? "application/octet-stream"
							    : "application/json",
						    "schema", schema_reference(route->request)));
	return operation;
}

static json_t *make_paths(void)
{
	static const char *const method_keys[ROUTE_METHOD_MAX_] = {
		[ROUTE_GET] = "get",     [ROUTE_POST] = "post", [ROUTE_DELETE] = "delete",
		[ROUTE_PATCH] = "patch", [ROUTE_PUT] = "put",
	};
	json_t *paths = json_object();
	const struct route *route;

	for (size_t i = 0; (route = routes_at(i)); i++) {
		json_t *path = json_object_get(paths, route->pattern);
		const char *method = method_keys[route->method];

		if (!path) {
			path = json_object();
			(void)json_object_set_new(paths, route->pattern, path);
		}
		(void)json_object_set_new(path, method, make_operation(route));
	}
	return paths;
}

/* The errors of the runtime API by their codes. */
static json_t *make_errors(void)
{
	json_t *all = json_object();

	for (enum runtime_error i = 0; i < RUNTIME_ERROR_MAX_; i++) {
		const struct runtime_error_row *row = runtime_error_row(i);

		(void)json_object_set_new(all, row->code,
					  json_pack("{s:i, s:b, s:s}", "status", row->status,
						    "retryable", row->retryable, "detail",
						    row->detail));
	}
	return all;
}

json_t *openapi_document(const struct api_config *config)
{
	return json_pack("{s:s, s:{s:s, s:s}, s:o, s:{s:o}, s:o, s:{s:s, s:s, s:s, s:s}}",
			 "openapi", "3.1.0", "info", "title", "sandboxd", "version",
			 SANDBOXD_VERSION, "paths", make_paths(), "components", "schemas",
			 make_schemas(), "x-errors", make_errors(), "x-identity-headers", "user",
			 config->header_user, "workspace", config->header_workspace, "project",
			 config->header_project, "scopes", config->header_scopes);
}
