/* SPDX-License-Identifier: MIT */

/*
 * kiln doctor on room.  A store with a limit begins with an index and one segment,
 * and grows by segments (src/store/log): a disk may have room for neither, and
 * programs say nothing of it.
 */

#include "doctor.h"

#include <string.h>

#include "base/text.h"

/* Of the limit; see docs/formats/log.md. */
#define SEGMENTS      64
#define INDEX_PART    128
#define SEGMENT_FIRST ((uint64_t)16 << 20) /* without a limit */
#define SEGMENT_MAX   ((uint64_t)256 << 20)
#define FILES_FEW     ((uint64_t)1 << 20) /* of a store with a file per entry */

static uint64_t segment_bytes(uint64_t limit)
{
	const uint64_t bytes = limit ? limit / SEGMENTS : SEGMENT_FIRST;

	return bytes < SEGMENT_MAX ? bytes : SEGMENT_MAX;
}

/* Of one that is to be made. */
static int will_be_log(const struct ki_doctor *doctor, const char *path)
{
	const char *url = kiln_config_value(doctor->config, KILN_SET_STORE);
	enum ki_file_system kind = KI_FS_UNKNOWN;

	(void)ki_sys_posix.file_system(&ki_sys_posix, path, &kind);
	return kind == KI_FS_LOCAL && (!url || !strncmp(url, "log:", 4));
}

void ki_doctor_room(struct ki_doctor *doctor, const char *path,
		    const struct kiln_store_info *info)
{
	const int is_log =
		info ? !strcmp(info->kind, "log") : will_be_log(doctor, path);
	const uint64_t limit =
		info ? info->bytes_max
		     : kiln_config_number(doctor->config, KILN_SET_MAX_SIZE);
	uint64_t needed = is_log ? segment_bytes(limit) : FILES_FEW, room;
	char left[32], wanted[32];

	if (is_log && !info)
		needed += limit / INDEX_PART;
	if (ki_disk_room(path, &room) || room >= needed ||
	    (info && limit && info->bytes + needed > limit))
		return;
	ki_format_size(room, left, sizeof(left));
	ki_format_size(needed, wanted, sizeof(wanted));
	if (info)
		ki_doctor_say(
			doctor, "room", KI_DOCTOR_NOTE,
			"make room on that disk",
			"the disk has %s left and the store would grow by "
			"%s: what is there is found, what is new may not "
			"be kept",
			left, wanted);
	else
		ki_doctor_say(doctor, "room", KI_DOCTOR_BAD,
			      "make room there, set KILN_MAX_SIZE to less, or "
			      "KILN_DIR to a directory on another disk",
			      "the disk has %s left, and a store begins with "
			      "%s: nothing can be kept",
			      left, wanted);
}
