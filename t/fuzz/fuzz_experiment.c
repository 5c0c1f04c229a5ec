/* Experiment files and ng.config values are foreign bytes: whatever comes, parse or refuse. */
#include "common/base/compat.h"

#include "common/fed/experiment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char head[] = "{\"base\":";
	struct ng_experiment exp, again;
	struct ng_config config;
	struct ng_err err;

	if (size >= sizeof head && memcmp(data, head, sizeof head - 1) == 0) {
		if (ng_config_parse(&config, (const char *)data, size, &err) == 0) {
			char *text = ng_config_json(&config);
			ng_config_release(&config);
			if (ng_config_parse(&config, text, strlen(text), &err) < 0)
				abort(); /* what we write we must read */
			free(text);
		}
		ng_config_release(&config);
		return 0;
	}
	if (ng_experiment_parse(&exp, (const char *)data, size, "fuzz", NULL, 0, &err) == 0) {
		char *json = ng_experiment_json(&exp);
		ng_experiment_supported(&exp, &err);
		if (ng_experiment_parse(&again, json, strlen(json), "again", NULL, 0, &err) < 0)
			abort();
		ng_experiment_release(&again);
		free(json);
		ng_experiment_release(&exp);
	}
	return 0;
}
