#include "supervisor/config/server_check.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/str.h"

void server_check(const struct config_answer *answer, network_complain *complain, void *userdata)
{
	const struct api_config *api = &answer->api;
	const struct engine_config *docker = &answer->supervisor.docker;
	const struct remote_config *remote = &answer->supervisor.remote;
	const bool has_remote = remote->url[0] != '\0';
	const bool has_docker = docker->socket[0] != '\0';
	const bool has_broker = api->celery.broker.place.port != 0;
	const struct need {
		bool is_missing;
		const char *section;
		const char *text;
	} needs[] = {
		{api->store_password[0] && !api->store_dsn[0],                                "store",    "password needs dsn"                                                  },
		{answer->redis.password[0] && api->redis.port == 0,                           "redis",    "password needs url"                                                  },
		{api->platform.redis.password[0] && api->platform.redis.place.port == 0,      "platform",
		 "redis_password needs redis_url"															       },
		{api->celery.results.place.port != 0 && !has_broker,                          "celery",
		 "result_url needs broker_url"																  },
		{api->celery.executes != 0 && !has_broker,                                    "celery",
		 "execution = celery needs broker_url"															  },
		{has_docker && docker->image[0] == '\0',                                      "docker",   "socket needs image"                                                  },
		{has_docker && answer->supervisor.environment == 0 && !docker->in_production,
		 "docker",										"socket needs environment = development, or allow_in_production = yes"},
		{has_remote && remote->credential_file[0] == '\0',                            "remote",
		 "url needs credential_file"																    },
		{has_remote && remote->template[0] == '\0',                                   "remote",   "url needs template"                                                  },
 /* Whoever takes its port while the service is down would be told the credential. */
		{has_remote && answer->supervisor.environment == 0 &&
			 str_has_prefix(remote->url,                         "http:"),
		 "remote",																			"url needs https, or environment = development"},
 /* One process has the engine, whichever it is. */
		{has_remote && has_docker,									   "remote",
		 "url cannot be used together with socket in [docker]"                                                 },
		{api->provider == 2 && !has_remote,									   "api",
		 api->provider_by_variable ? "SANDBOX_PROVIDER = remote needs url in [remote]"
					   : "provider = remote needs url in [remote]"},
		{api->provider == 1 && !has_docker,									   "api",
		 api->provider_by_variable ? "SANDBOX_PROVIDER = docker needs socket in [docker]"
					   : "provider = docker needs socket in [docker]"                                                 },
		{api->snapshot_encryption == CONFIG_ENCRYPTION_REQUIRED &&
			 api->snapshot_keys.n == 0,
		 "snapshots",				    "encryption = required needs keys"																		    },
		{api->snapshot_store == CONFIG_SNAPSHOTS_S3 && answer->s3.host[0] == '\0',
		 "snapshots",              "store = s3 needs s3_endpoint"																		    },
		{answer->s3.host[0] != '\0' && answer->s3.bucket[0] == '\0',                                                                           "snapshots",
		 "s3_endpoint needs s3_bucket"},
		{answer->s3.host[0] != '\0' && answer->s3.credentials[0] == '\0',                                                                           "snapshots",
		 "s3_endpoint needs s3_credentials"																	       },
	};

	for (size_t i = 0; i < ARRAY_SIZE(needs); i++)
		if (needs[i].is_missing)
			complain(userdata, needs[i].section, needs[i].text);
}
