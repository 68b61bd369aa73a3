/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_POWER_DISK_H
#define KI_TESTS_POWER_DISK_H

/*
 * A directory on a disk whose power fails.  Whatever is changed through
 * disk.sys happens, and is written down; then
 *
 *	disk_power_off(&disk, &random, "elsewhere")
 *
 * makes there what a disk may hold if the power went at a moment by chance:
 *
 * - names: as they were a while ago, or with single links, renames, removals
 *   and new files never having happened, in any order, a rename half done;
 * - sizes: as allocated, or as of some moment before;
 * - bytes: each file as it was at a moment of its own, torn between two
 *   moments at any sector, or each sector from a moment of its own; what never
 *   arrived reads as zeros or, rarely, as what another file had there.  Pages
 *   of shared mappings count as written at any call between two changes.
 *
 * What was synced stays.  Files keep the number that they are known by, and the
 * time of their last write; other times, owners and locks are not kept.
 */

#include "sys/sys.h"

struct disk_file;
struct disk_event;
struct disk_name;
struct disk_mapping;

#define DISK_DESCRIPTORS 1024

struct disk {
	struct ki_sys sys;
	char *root;
	char *boot_path; /* what the system says about this boot */
	struct disk_file *files;
	struct disk_event *events;
	struct disk_name *names; /* as they are now */
	struct disk_mapping *mappings;
	unsigned n_files, n_events, n_names, n_mappings;
	unsigned file_of[DISK_DESCRIPTORS]; /* 0: none */
	uint64_t random;		    /* what the store draws, too */
};

/* What lies in the directory is safe.  `boot` tells one boot from another. */
void disk_begin(struct disk *disk, const char *directory, unsigned boot,
		uint64_t random);
void disk_end(struct disk *disk);

/* The moment now, and the one before which the power failed. */
unsigned disk_now(struct disk *disk);
unsigned disk_power_off(struct disk *disk, uint64_t *random, const char *to);

#endif /* KI_TESTS_POWER_DISK_H */
