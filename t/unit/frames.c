/*
 * frames KEY=VALUE... - write one global or update for tests and measurements,
 * and print its content digest and object digest:
 *	frames path=g.zst kind=global shape=minilm
 *	frames path=a.zst kind=update base=HEX site=site-a seed=3 bad=nan
 */
#include "common/base/compat.h"

#include "common/base/err.h"
#include "common/base/str.h"
#include "t/unit/frames.h"

int main(int argc, char **argv)
{
	struct frames_spec global = FRAMES_GLOBAL, update = FRAMES_UPDATE, spec = update;
	char digest[NG_HASH_HEX], object[NG_HASH_HEX];
	struct ng_err err = { NG_OK, "" };
	long long seed;

	ng_start(argv[0]);
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "kind=global") == 0)
			spec = global;
	for (int i = 1; i < argc; i++) {
		const char *key = argv[i], *value = strchr(argv[i], '=');
		if (!value)
			ng_die(NG_USAGE, "'%s' is not KEY=VALUE", key);
		size_t n = (size_t)(value++ - key);
		const struct {
			const char *key;
			const char **text;
			long *number;
		} rows[] = { { "path", &spec.path, NULL }, { "kind", &spec.kind, NULL }, { "name", &spec.name, NULL },
			{ "id", &spec.id, NULL }, { "site", &spec.site, NULL }, { "base", &spec.base, NULL },
			{ "bad", &spec.bad, NULL }, { "shape", &spec.shape, NULL },
			{ "experiment", &spec.experiment, NULL }, { "round", NULL, &spec.round },
			{ "examples", NULL, &spec.examples }, { "steps", NULL, &spec.steps } };
		bool known = false;
		for (size_t j = 0; j < NG_COUNT(rows); j++) {
			if (strlen(rows[j].key) != n || strncmp(rows[j].key, key, n) != 0)
				continue;
			known = true;
			if (rows[j].text)
				*rows[j].text = value;
			else
				*rows[j].number = strtol(value, NULL, 10);
		}
		if (n == 4 && strncmp(key, "seed", n) == 0 && ng_parse_long(&seed, value, 0, UINT32_MAX))
			spec.seed = (uint32_t)seed;
		else if (n == 5 && strncmp(key, "scale", n) == 0)
			spec.scale = strtod(value, NULL);
		else if (n == 8 && strncmp(key, "brackets", n) == 0)
			spec.brackets = strcmp(value, "1") == 0;
		else if (!known)
			ng_die(NG_USAGE, "'%s' is not known", key);
	}
	if (!spec.path)
		ng_die(NG_USAGE, "path=FILE is missing");
	if (frames_write(&spec, digest, object, &err) < 0)
		ng_die_err(&err);
	printf("%s %s\n", digest, object);
	return ng_finish(NG_OK);
}
