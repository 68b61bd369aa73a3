/* SPDX-License-Identifier: MIT */
#ifndef KI_SIGN_FILES_H
#define KI_SIGN_FILES_H

/*
 * Keys in files, below a directory of configuration:
 *
 *	keys/NAME.secret		0600, in a directory of 0700
 *	keys/NAME.public		what others are given
 *	trusted-keys/NAME.public	who is trusted here
 *
 * Nothing is read that others could have written, and no secret that others can
 * read.  `out_why` is a static half sentence, "can be read by others"; it may be
 * NULL, and is written on failure only.
 */

#include "sign/sign.h"
#include "sys/sys.h"

#define KI_SIGN_KEYS	"keys"
#define KI_SIGN_TRUSTED "trusted-keys"
#define KI_SIGN_SYSTEM	"/etc/kiln"
#define KI_SIGN_SECRET	".secret"
#define KI_SIGN_PUBLIC	".public"
/* The key that signs where none is named. */
#define KI_SIGN_DEFAULT "default"

/* "DIRECTORY/FOLDER/NAME.suffix"; -ENAMETOOLONG. */
int ki_sign_path(char out[KI_PATH_MAX], const char *directory,
		 const char *folder, const char *name, const char *suffix);

/* MISS (no such file); OWNER (of others, or readable by them, or a link); FORMAT
   (no secret key); IO, NO_MEMORY. */
enum kiln_status ki_sign_read_secret(const struct ki_sys *sys, const char *path,
				     struct ki_sign_secret *out_secret,
				     const char **out_why);

/* The same of a key as options have it: the path from the root of its file, or the
   key itself. */
enum kiln_status ki_sign_read_given(const struct ki_sys *sys, const char *given,
				    struct ki_sign_secret *out_secret,
				    const char **out_why);

/* Add the keys of one file.  As above, but anybody may read it; FULL. */
enum kiln_status ki_sign_read_public(const struct ki_sys *sys, const char *path,
				     struct ki_sign_trust *trust,
				     const char **out_why);

/* `path`: the file or directory that is not as it should be, and so left out. */
typedef void ki_sign_complain_fn(void *arg, const char *path, const char *why);

/*
 * Add the keys of all files NAME.public in a directory; it need not be there.  What
 * is wrong with one goes to `complain`, and the others count.  Only NO_MEMORY.
 */
enum kiln_status ki_sign_read_trusted(const struct ki_sys *sys,
				      const char *directory,
				      struct ki_sign_trust *trust,
				      ki_sign_complain_fn *complain, void *arg);

/*
 * Write a text whole or not at all; missing directories are made, 0700.  EXISTS
 * (without `replace`), READONLY, IO.
 */
enum kiln_status ki_sign_write(const struct ki_sys *sys, const char *path,
			       const char *text, unsigned mode, int replace);

#endif /* KI_SIGN_FILES_H */
