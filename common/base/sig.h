/*
 * sig.h - signals: temporaries are unlinked, then the signal kills us.
 */
#ifndef NG_SIG_H
#define NG_SIG_H

#include "common/base/compat.h"

/* A file (or an empty-able directory tree made by us: see out.h) to unlink
 * when a signal or ng_die ends the process.  At most 64 at once; returns a
 * slot or dies with 70.  Paths are copied and made absolute. */
int ng_sig_guard(const char *path);
void ng_sig_release(int slot);
/* Unlink everything guarded now (ng_die and exit paths). */
void ng_sig_cleanup(void);

/* ng-train: the first SIGTERM, SIGINT or SIGHUP only sets a flag, the second
 * kills at once.  ng_sig_pending gives the signal or 0; ng_sig_die dies by it. */
void ng_sig_defer(void);
int ng_sig_pending(void);
void ng_sig_die(int sig) NG_NORETURN;

#endif
