#include "common/base/compat.h"

#include "common/base/str.h"
#include "t/unit/check.h"

static void buffers(void)
{
	struct ng_str s;
	char *p;

	ng_str_init(&s, 10);
	CHECK_STR_EQ(s.data, "");
	CHECK(ng_str_adds(&s, "hello") == 0);
	CHECK(ng_str_addf(&s, "%d", 12345) == 0);
	CHECK_STR_EQ(s.data, "hello12345");
	CHECK(ng_str_adds(&s, "x") == -1);
	CHECK(s.failed);
	CHECK_STR_EQ(s.data, "hello12345");
	CHECK(ng_str_adds(&s, "") == -1); /* stays failed */
	ng_str_reset(&s);
	CHECK(!s.failed && s.len == 0);
	CHECK(ng_str_add(&s, "a\0b", 3) == 0);
	CHECK_INT_EQ(s.len, 3);
	p = ng_str_take(&s);
	CHECK(memcmp(p, "a\0b", 4) == 0);
	free(p);
	p = ng_str_take(&s);
	CHECK_STR_EQ(p, "");
	free(p);
	ng_str_release(&s);
}

static void utf8(void)
{
	static const struct {
		const char *s;
		size_t len, bad;
	} wrong[] = {
		{ "ab\xc0\x80", 4, 2 },	      /* overlong NUL */
		{ "\xed\xa0\x80", 3, 0 },     /* surrogate */
		{ "\xf4\x90\x80\x80", 4, 0 }, /* beyond U+10FFFF */
		{ "\xe2\x82", 2, 0 },	      /* cut */
		{ "12345678\x80", 9, 8 },     /* after the eight-byte path */
		{ "\xf0\x80\x80\x80", 4, 0 }, /* overlong */
		{ "\xff", 1, 0 },
	};
	char buf[4];
	uint32_t cp, back;
	size_t i, n, bad;
	bool all = true;

	for (i = 0; i < NG_COUNT(wrong); i++) {
		bad = 99;
		CHECK(!ng_utf8_valid(wrong[i].s, wrong[i].len, &bad));
		CHECK_INT_EQ(bad, wrong[i].bad);
	}
	CHECK(ng_utf8_valid("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80 12345678", 19, NULL));
	CHECK(ng_utf8_valid("", 0, NULL));
	for (cp = 0; cp <= 0x110000; cp++) {
		n = ng_utf8_encode(buf, cp);
		if (n == 0) {
			if (!((cp >= 0xd800 && cp <= 0xdfff) || cp > 0x10ffff))
				all = false;
		} else if (ng_utf8_decode(&back, buf, n) != n || back != cp || ng_utf8_decode(&back, buf, n - 1) == n) {
			all = false;
		}
	}
	CHECK_MSG(all, "every code point survives encode and decode");
}

static void names_and_numbers(void)
{
	char long_name[80], out[16];
	long long n;
	uint64_t u;
	double d;
	unsigned char bytes[3];

	memset(long_name, 'a', sizeof long_name);
	long_name[64] = 0;
	CHECK(ng_name_valid("a") && ng_name_valid("site-a") && ng_name_valid("9x") && ng_name_valid(long_name));
	long_name[64] = 'a';
	long_name[65] = 0;
	CHECK(!ng_name_valid(long_name) && !ng_name_valid("") && !ng_name_valid("-a") && !ng_name_valid("a-"));
	CHECK(!ng_name_valid("A") && !ng_name_valid("a/b") && !ng_name_valid("..") && !ng_name_valid("a b"));

	CHECK(ng_parse_long(&n, "-5", -10, 10) && n == -5);
	CHECK(!ng_parse_long(&n, "5x", 0, 10) && !ng_parse_long(&n, "", 0, 10) && !ng_parse_long(&n, " 5", 0, 10));
	CHECK(!ng_parse_long(&n, "11", 0, 10) && !ng_parse_long(&n, "99999999999999999999", 0, INT64_MAX));
	CHECK(ng_parse_double(&d, "2e-5") && d == 2e-5);
	CHECK(ng_parse_double(&d, "-.5") && d == -0.5);
	CHECK(!ng_parse_double(&d, "nan") && !ng_parse_double(&d, "inf") && !ng_parse_double(&d, "0x10"));
	CHECK(!ng_parse_double(&d, "1e999") && !ng_parse_double(&d, "") && !ng_parse_double(&d, "1 "));
	CHECK(!ng_parse_double(&d, "-") && !ng_parse_double(&d, "."));
	CHECK(ng_parse_size(&u, "700M") && u == 700u << 20);
	CHECK(ng_parse_size(&u, "2G") && u == UINT64_C(2) << 30);
	CHECK(ng_parse_size(&u, "3KiB") && u == 3072);
	CHECK(ng_parse_size(&u, "12") && u == 12);
	CHECK(!ng_parse_size(&u, "2GB") && !ng_parse_size(&u, "M") && !ng_parse_size(&u, "-1") &&
		!ng_parse_size(&u, "99999999999T"));
	CHECK(ng_parse_duration(&n, "90s") && n == 90);
	CHECK(ng_parse_duration(&n, "7d") && n == 604800);
	CHECK(ng_parse_duration(&n, "0") && n == 0);
	CHECK(!ng_parse_duration(&n, "5") && !ng_parse_duration(&n, "1hh") && !ng_parse_duration(&n, "h"));

	ng_hex(out, (const unsigned char *)"\x00\xab\xff", 3);
	CHECK_STR_EQ(out, "00abff");
	CHECK(ng_unhex(bytes, "00abff", 3) && memcmp(bytes, "\x00\xab\xff", 3) == 0);
	CHECK(!ng_unhex(bytes, "00ABFF", 3) && !ng_unhex(bytes, "00abf", 3) && !ng_unhex(bytes, "00abff0", 3));

	ng_printable(out, sizeof out, "a\x1b[1m\xff\xc2\x85z", 9);
	CHECK_STR_EQ(out, "a?[1m??z");
	ng_printable(out, 4, "ab\xc3\xbc", 4); /* no half characters */
	CHECK_STR_EQ(out, "ab");
}

int main(void)
{
	buffers();
	utf8();
	names_and_numbers();
	return check_done();
}
