/*
 * zframe.c - zstd frame headers and brackets; see zframe.h.
 */
#include "common/base/compat.h"

#include "common/base/json.h"
#include "common/tensor/zframe.h"

uint32_t ng_le32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

bool ng_zframe_skippable(uint32_t magic)
{
	return (magic & 0xfffffff0u) == 0x184D2A50u;
}

bool ng_zframe_parse(struct ng_zframe *out, const unsigned char *p, size_t n)
{
	static const unsigned dict_bytes[4] = { 0, 1, 2, 4 }, content_bytes[4] = { 0, 2, 4, 8 };
	size_t at = 5;

	if (n < 6 || ng_le32(p) != NG_ZFRAME_MAGIC)
		return false;
	unsigned d = p[4];
	bool single = d & 0x20;
	if (d & 0x08) /* reserved */
		return false;
	out->checksum = d & 0x04;
	if (!single) {
		unsigned log = 10 + (p[at] >> 3);
		out->window = ((uint64_t)1 << log) + (((uint64_t)1 << log) >> 3) * (p[at] & 7u);
		at++;
	}
	unsigned nd = dict_bytes[d & 3u], nc = content_bytes[d >> 6];
	if (nc == 0 && single)
		nc = 1;
	if (at + nd + nc > n)
		return false;
	out->dictionary = false;
	for (unsigned i = 0; i < nd; i++)
		out->dictionary |= p[at + i] != 0;
	at += nd;
	uint64_t content = 0;
	for (unsigned i = 0; i < nc; i++)
		content |= (uint64_t)p[at + i] << 8 * i;
	if (nc == 2)
		content += 256;
	out->content = nc ? content : UINT64_MAX;
	if (single)
		out->window = content;
	return true;
}

static int add_frame(struct ng_str *out, const char *text, struct ng_err *err)
{
	size_t len = strlen(text);
	unsigned char head[8];

	if (len > NG_BRACKET_MAX)
		return ng_fail(err, NG_DATA, "what the opening would say is over %u bytes", NG_BRACKET_MAX);
	for (int i = 0; i < 4; i++) {
		head[i] = (unsigned char)(NG_BRACKET_MAGIC >> 8 * i);
		head[4 + i] = (unsigned char)(len >> 8 * i);
	}
	ng_str_add(out, head, sizeof head);
	ng_str_add(out, text, len);
	return out->failed ? ng_fail(err, NG_SOFTWARE, "no room for a bracket") : 0;
}

int ng_bracket_add(struct ng_str *out, const char *key, const json_t *value, struct ng_err *err)
{
	json_t *inner = json_object(), *outer = json_object();

	if (!inner || !outer || json_object_set(inner, key, (json_t *)(uintptr_t)value) < 0 ||
		json_object_set_new(outer, "ng", inner) < 0) {
		json_decref(outer);
		return ng_fail(err, NG_OSERR, "no memory for a bracket");
	}
	char *text = ng_json_canonical(outer);
	json_decref(outer);
	int rc = add_frame(out, text, err);
	free(text);
	return rc;
}

int ng_closing_add(struct ng_str *out, const struct ng_closing *c, struct ng_err *err)
{
	char reason[NG_ERR_MAX];

	/* jansson takes UTF-8 only; the text may have been cut inside a character */
	ng_printable(reason, sizeof reason, c->reason, strlen(c->reason));
	json_t *v = json_pack("{s:i, s:I, s:s}", "code", c->code, "frames", (json_int_t)c->frames, "reason", reason);
	if (!v || (c->opening[0] && json_object_set_new(v, "opening", json_string(c->opening)) < 0)) {
		json_decref(v);
		return ng_fail(err, NG_OSERR, "no memory for a closing");
	}
	int rc = ng_bracket_add(out, "close", v, err);
	json_decref(v);
	return rc;
}

static int parse_closing(struct ng_closing *out, const json_t *v, struct ng_err *err)
{
	long frames = -1, code = -1;
	const char *reason = "", *opening = "";

	memset(out, 0, sizeof *out);
	if (!json_is_object(v) || ng_json_long(&frames, v, "frames", 0, INT32_MAX, "closing", err) < 0 ||
		ng_json_long(&code, v, "code", 0, 255, "closing", err) < 0 ||
		ng_json_string(&reason, v, "reason", "closing", err) < 0 ||
		ng_json_string(&opening, v, "opening", "closing", err) < 0 || (*opening && !ng_hash_valid(opening)) ||
		frames < 0 || code < 0)
		return ng_fail(err, NG_DATA, "the closing is malformed");
	out->frames = (size_t)frames;
	out->code = (int)code;
	ng_printable(out->reason, sizeof out->reason, reason, strlen(reason));
	memcpy(out->opening, *opening ? opening : "", *opening ? NG_HASH_HEX : 1);
	return 0;
}

int ng_bracket_parse(enum ng_bracket *out, json_t **opening, struct ng_closing *closing, const char *text, size_t len,
	struct ng_err *err)
{
	json_t *j = ng_json_parse(text, len, "bracket", err);
	int rc = 0;

	*out = NG_BRACKET_OTHER;
	if (!j)
		return -1;
	const json_t *ng = json_object_get(j, "ng");
	json_t *open = json_object_get(ng, "open"), *close = json_object_get(ng, "close");
	if (close) {
		*out = NG_BRACKET_CLOSE;
		rc = parse_closing(closing, close, err);
	} else if (open) {
		*out = NG_BRACKET_OPEN;
		if (json_is_object(open))
			*opening = json_incref(open);
		else
			rc = ng_fail(err, NG_DATA, "the opening is malformed");
	}
	json_decref(j);
	return rc;
}

bool ng_closing_find(struct ng_closing *out, const unsigned char *tail, size_t len)
{
	for (size_t n = 8; n <= len && n <= NG_CLOSING_MAX + 8; n++) {
		const unsigned char *p = tail + len - n;
		enum ng_bracket what;
		json_t *opening = NULL;
		if (ng_le32(p) != NG_BRACKET_MAGIC || ng_le32(p + 4) != n - 8)
			continue;
		if (ng_bracket_parse(&what, &opening, out, (const char *)p + 8, n - 8, NULL) == 0 &&
			what == NG_BRACKET_CLOSE)
			return true;
		json_decref(opening);
	}
	return false;
}
