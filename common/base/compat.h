/*
 * compat.h - the first include of every file in common/ and cmd/.
 * Feature-test macros, the few compiler attributes we use, and the functions
 * that nobody may call.  It must never declare anything of its own.
 */
#ifndef NG_COMPAT_H
#define NG_COMPAT_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define NG_NORETURN __attribute__((noreturn))
#define NG_WARN_UNUSED __attribute__((warn_unused_result))
#define NG_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atof mktemp tmpnam gets

#endif
