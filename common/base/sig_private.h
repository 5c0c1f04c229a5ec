/*
 * sig_private.h - what err.c and out.c need of sig.c: set-up, and signals held
 * back between the making of a temporary and its entry in the table.
 */
#ifndef NG_SIG_PRIVATE_H
#define NG_SIG_PRIVATE_H

#include <signal.h>

#include "common/base/compat.h"

/* Handlers that clean up and re-raise; ignored signals stay ignored. */
void ng_sig_setup(void);
void ng_sig_block(sigset_t *old);
void ng_sig_restore(const sigset_t *old);

#endif
