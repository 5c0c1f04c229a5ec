/*
 * walk.c - stepping over the blocks of a zstd frame (RFC 8878); see walk.h.
 */
#include "common/base/compat.h"

#include "common/board/walk.h"

/* Bytes of the frame header that begins with these five; 0 when they are none. */
static size_t header_size(const unsigned char *p)
{
	static const size_t dict[4] = { 0, 1, 2, 4 }, content[4] = { 0, 2, 4, 8 };
	bool single = p[4] & 0x20;
	size_t n = content[p[4] >> 6];

	if (ng_le32(p) != NG_ZFRAME_MAGIC || p[4] & 0x08)
		return 0;
	return (single ? 5 : 6) + dict[p[4] & 3] + (n == 0 && single ? 1 : n);
}

/* How many bytes the state still wants in buf. */
static size_t wanted(const struct ng_walk *w)
{
	switch (w->state) {
	case NG_WALK_HEAD:
		return w->have < 5 ? 5 : header_size(w->buf);
	case NG_WALK_BLOCK:
		return 3;
	case NG_WALK_CHECKSUM:
		return 4;
	default:
		return 0;
	}
}

static int step(struct ng_walk *w, struct ng_err *err)
{
	uint32_t head;

	switch (w->state) {
	case NG_WALK_HEAD:
		if (header_size(w->buf) == 0)
			return ng_fail(err, NG_DATA, "no zstd frame");
		if (w->have < header_size(w->buf))
			return 0;
		w->checksum = w->buf[4] & 0x04;
		w->state = NG_WALK_BLOCK;
		break;
	case NG_WALK_BLOCK:
		head = (uint32_t)w->buf[0] | (uint32_t)w->buf[1] << 8 | (uint32_t)w->buf[2] << 16;
		if ((head >> 1 & 3) == 3)
			return ng_fail(err, NG_DATA, "a damaged zstd frame");
		w->last = head & 1;
		w->left = (head >> 1 & 3) == 1 ? 1 : head >> 3; /* a run is one byte */
		w->state = NG_WALK_SKIP;
		break;
	case NG_WALK_CHECKSUM:
		w->state = NG_WALK_DONE;
		break;
	default:
		break;
	}
	w->have = 0;
	return 0;
}

int ng_walk_feed(struct ng_walk *w, const void *data, size_t n, struct ng_err *err)
{
	const unsigned char *p = data;

	while (n > 0 || (w->state == NG_WALK_SKIP && w->left == 0)) {
		if (w->state == NG_WALK_DONE)
			return ng_fail(err, NG_DATA, "something follows the frame");
		if (w->state == NG_WALK_SKIP) {
			size_t k = w->left < n ? w->left : n;
			w->left -= (uint32_t)k;
			p += k;
			n -= k;
			if (w->left == 0)
				w->state = !w->last ? NG_WALK_BLOCK : w->checksum ? NG_WALK_CHECKSUM : NG_WALK_DONE;
			continue;
		}
		w->buf[w->have++] = *p++;
		n--;
		if (w->have >= wanted(w) && step(w, err) < 0)
			return -1;
	}
	return 0;
}

int ng_walk_end(const struct ng_walk *w, struct ng_err *err)
{
	return w->state == NG_WALK_DONE ? 0 : ng_fail(err, NG_DATA, "the frame is cut");
}
