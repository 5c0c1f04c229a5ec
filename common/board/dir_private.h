/*
 * dir_private.h - what the files of the directory board share.
 *
 *	BOARD/EXPERIMENT/tmp/NAME.RANDOM/        being written, or being removed
 *	BOARD/EXPERIMENT/global/00003/part-00000 the payload
 *	                             /part-00001
 *	                             /signature  the text of statement.h
 *	                             /files/...  small files of a manifest
 *	BOARD/EXPERIMENT/claim/00003/site-a      one file: text, blank line, payload
 *
 * Everything goes through descriptors of folders that were opened without
 * following symbolic links, so that no name on the board leads out of it.
 */
#ifndef NG_BOARD_DIR_PRIVATE_H
#define NG_BOARD_DIR_PRIVATE_H

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/board/board.h"

#define NG_DIR_SIGNATURE "signature"
#define NG_DIR_FILES "files"
#define NG_DIR_TMP "tmp"
#define NG_DIR_CLAIM_MAX 65536

struct ng_dir {
	int fd;	     /* of EXPERIMENT */
	int tmp;     /* of EXPERIMENT/tmp, -1 before the first writing */
	mode_t mode; /* of EXPERIMENT: that of every folder below it */
	dev_t dev;
	ino_t ino;
	char *path; /* of EXPERIMENT */
};

struct ng_dir *ng_dir_of(const struct ng_board *b);
/* err for errno of an operation on the board: says so when the board itself is gone. Returns -1. */
int ng_dir_fail(const struct ng_board *b, struct ng_err *err, const char *fmt, ...) NG_PRINTF(3, 4);
/* Open a folder below dirfd, no links. -1 and errno. */
int ng_dir_openat(int dirfd, const char *name);
/* The folder that holds the object's own entry, and the entry's name ("site-a").
 * create: make what is missing. -1 and errno. */
int ng_dir_parent(const struct ng_board *b, const struct ng_name *name, char leaf[80], bool create);
/* mkdir with the experiment's mode; one that is there is fine. -1 and errno. */
int ng_dir_mkdirat(const struct ng_board *b, int dirfd, const char *name);
/* Open EXPERIMENT/tmp, making it. */
int ng_dir_tmp(const struct ng_board *b, struct ng_err *err);
/* "update-00003-site-a.0123456789abcdef" */
void ng_dir_temp_name(char out[160], const struct ng_name *name);
/* rename that fails with EEXIST rather than replace a file or a folder that is not empty. */
int ng_dir_rename_new(int fromfd, const char *from, int tofd, const char *to);
/* Remove name below dirfd, whatever it is. 0, or -1 and errno. */
int ng_dir_remove_tree(int dirfd, const char *name);
/* Number of parts and bytes of the object open at fd: -1 (errno 0) when it has not the shape of one. */
int ng_dir_measure(int fd, struct ng_entry *e);
bool ng_dir_part_number(long *out, const char *name);

/* dir_read.c */
int ng_dir_object_open(struct ng_object *o, struct ng_err *err);
void ng_dir_object_close(struct ng_object *o);
ptrdiff_t ng_dir_object_read(struct ng_object *o, void *buf, size_t n, struct ng_err *err);
int ng_dir_object_rewind(struct ng_object *o, struct ng_err *err);
int ng_dir_object_file(struct ng_object *o, const char *rel, char **out, size_t *len, size_t max, struct ng_err *err);
int ng_dir_object_discard(struct ng_object *o, struct ng_err *err);
/* dir_write.c */
int ng_dir_writer_open(struct ng_object_writer *w, struct ng_err *err);
int ng_dir_writer_write(struct ng_object_writer *w, const void *data, size_t n, struct ng_err *err);
int ng_dir_writer_file(struct ng_object_writer *w, const char *rel, const void *data, size_t len, struct ng_err *err);
int ng_dir_writer_commit(struct ng_object_writer *w, const char *signature, size_t len, struct ng_err *err);
void ng_dir_writer_close(struct ng_object_writer *w);

#endif
