/* SPDX-License-Identifier: MIT */
#ifndef KIR_LOG_H
#define KIR_LOG_H

/*
 * The log of this process: the file of KILN_LOG, or nowhere.  Whoever writes a line
 * has made sure that nothing secret is in it: URLs as backends show them.
 */

/* NULL: nowhere.  A file that cannot be written is nowhere, too. */
void log_open(const char *path);

/* One line; control characters in it become question marks. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* KIR_LOG_H */
