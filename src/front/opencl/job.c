/* SPDX-License-Identifier: MIT */

/*
 * Jobs and the spool that holds them (docs/formats/job.md).
 *
 * Writing, in the program that built:
 *
 *	write DIGEST.job.PID.START.N.tmp
 *	count what is in the spool; too much: unlink it, refused.  Of several
 *		writers the last to count sees all temporaries, so the bound
 *		holds without a lock
 *	link to DIGEST.job, which is refused if the key has a job already
 *	unlink the temporary
 *
 * Counting costs about a microsecond for each job that is there: too much at
 * every build of a program that builds thousands where no worker comes.  So a
 * process that found the spool at most three quarters full has an allowance
 * of 1 MiB, for which it does not count.
 *
 * Counting walks the spool and clears out on the way what is past its age, so
 * a spool that no worker ever empties does not stay full for good.  Ages are
 * taken from the file's time, either way: a clock that jumped makes a job old,
 * never immortal.  A temporary goes only if its writer is dead *and* it is
 * old, because a writer in another container looks dead from here.
 *
 * Nothing is synced: what a power cut tears fails its checksum.
 */

#include "front/opencl/job.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "front/opencl/key.h"
#include "front/opencl/tags.h"

#define MAGIC		      "kilnjob\n"
#define VERSION		      2u
#define HEADER_BYTES	      40
#define DIGEST_DIGITS	      (2 * KILN_DIGEST_BYTES)
#define SUFFIX		      ".job"
#define TEMPORARY_SUFFIX      ".tmp"
#define TEMPORARY_SECONDS_MAX 600
#define ALLOWANCE_BYTES_MAX   ((uint64_t)1 << 20)
#define ALLOWANCE_BYTES_MIN   ((uint64_t)256 << 10)
#define ALLOWANCE_PART	      16 /* of the room that is left */
#define REFUSED_NS	      ((uint64_t)10 * NS)
#define NS		      1000000000
#define N_WRITTEN	      64

/* Tags of fields; numbers are never used again. */
enum {
	TAG_RECORD = 1,
	TAG_PLATFORM = 2,
	TAG_DRIVER = 3,
	TAG_DEVICES = 4,
	TAG_RECIPE = 5, /* its own fields */
	TAG_DIRECTORY = 6,
	TAG_ENVIRONMENT = 7, /* repeated */
	TAG_APPLICATION = 8,
	TAG_NAMESPACE = 9,
	TAG_CREATED = 10,
	TAG_BUILD_NS = 11,
	TAG_STAGE = 12,
	TAG_TRIES = 13,
	TAG_WRITER_PID = 14,
	TAG_WRITER_START = 15,
	N_TAGS = 16,
};

#define REPEATED (1u << TAG_ENVIRONMENT)
#define ALL_ONCE ((1u << N_TAGS) - 2 - REPEATED)

const char *const ki_cl_loader_variables[] = {
	"OCL_ICD_VENDORS",
	"OCL_ICD_FILENAMES",
	"OPENCL_VENDOR_PATH",
	"LD_LIBRARY_PATH",
	NULL,
};

static void add_variables(struct ki_bytes *bytes, const char *const *names)
{
	for (; names && *names; names++) {
		const char *value = ki_environment(*names);

		if (value) {
			ki_bytes_printf(bytes, "%s=%s", *names, value);
			ki_bytes_add_u8(bytes, 0);
		}
	}
}

void ki_cl_job_environment(const struct ki_cl_driver *driver,
			   struct ki_bytes *bytes)
{
	add_variables(bytes, driver->code_variables);
	add_variables(bytes, driver->place_variables);
	add_variables(bytes, ki_cl_loader_variables);
}

/* ---- Bytes ------------------------------------------------------------- */

static void add_fields(struct ki_bytes *bytes, const struct ki_cl_job *job,
		       uint32_t tries)
{
	size_t place;
	uint32_t i;

	ki_cl_tag_add(bytes, TAG_RECORD, job->record, job->record_size);
	ki_cl_tag_add_text(bytes, TAG_PLATFORM, job->platform_name);
	ki_cl_tag_add_text(bytes, TAG_DRIVER, job->driver);
	ki_cl_tag_add_number(bytes, TAG_DEVICES, job->n_devices);
	place = ki_cl_tag_begin(bytes, TAG_RECIPE);
	ki_cl_recipe_write(job->recipe, bytes);
	ki_cl_tag_finish(bytes, place);
	ki_cl_tag_add_text(bytes, TAG_DIRECTORY, job->directory);
	for (i = 0; i < job->n_environment; i++)
		ki_cl_tag_add_text(bytes, TAG_ENVIRONMENT, job->environment[i]);
	ki_cl_tag_add_text(bytes, TAG_APPLICATION, job->application);
	ki_cl_tag_add_text(bytes, TAG_NAMESPACE, job->name_space);
	ki_cl_tag_add_number(bytes, TAG_CREATED, job->created);
	ki_cl_tag_add_number(bytes, TAG_BUILD_NS, job->build_ns);
	ki_cl_tag_add_number(bytes, TAG_STAGE, job->stage);
	ki_cl_tag_add_number(bytes, TAG_TRIES, tries);
	ki_cl_tag_add_number(bytes, TAG_WRITER_PID, job->writer_pid);
	ki_cl_tag_add_number(bytes, TAG_WRITER_START, job->writer_start);
}

static enum kiln_status encode(const struct ki_cl_job *job, uint32_t tries,
			       struct ki_bytes *bytes)
{
	uint8_t *header;

	bytes->limit = (size_t)KI_CL_SPOOL_BYTES_MAX;
	(void)ki_bytes_grow(bytes, HEADER_BYTES);
	add_fields(bytes, job, tries);
	if (bytes->failed)
		return ki_status_from_errno(bytes->failed);
	header = bytes->data;
	memcpy(header, MAGIC, 8);
	ki_put_u32(header + 8, VERSION);
	ki_put_u32(header + 12, 0);
	ki_put_u64(header + 16, bytes->size - HEADER_BYTES);
	ki_put_u64(header + 24, ki_xxh3_64(header + HEADER_BYTES,
					   bytes->size - HEADER_BYTES));
	ki_put_u64(header + 32, ki_xxh3_64(header, 32));
	return KILN_OK;
}

enum kiln_status ki_cl_job_bytes(const struct ki_cl_job *job,
				 struct ki_bytes *bytes)
{
	return encode(job, job->tries, bytes);
}

/* ---- Reading ----------------------------------------------------------- */

struct ki_cl_job_file {
	struct ki_cl_job job;
	void *bytes;
	/* What job.environment points to. */
	const char **environment;
};

static enum kiln_status check_header(const uint8_t *bytes, size_t size)
{
	if (size < HEADER_BYTES || memcmp(bytes, MAGIC, 8) ||
	    ki_get_u64(bytes + 32) != ki_xxh3_64(bytes, 32))
		return KILN_E_FORMAT;
	if (ki_get_u32(bytes + 8) != VERSION)
		return KILN_E_UNSUPPORTED;
	if (ki_get_u32(bytes + 12) ||
	    ki_get_u64(bytes + 16) != size - HEADER_BYTES ||
	    ki_get_u64(bytes + 24) !=
		    ki_xxh3_64(bytes + HEADER_BYTES, size - HEADER_BYTES))
		return KILN_E_FORMAT;
	return KILN_OK;
}

/* A tag from a newer kiln may change what is to be built: not ours to do. */
static enum kiln_status count_fields(struct ki_reader reader,
				     struct ki_cl_job *job)
{
	unsigned seen = 0;

	while (reader.size) {
		struct ki_cl_tag tag;

		if (!ki_cl_tag_next(&reader, &tag))
			return KILN_E_FORMAT;
		if (tag.tag >= N_TAGS)
			return KILN_E_UNSUPPORTED;
		if (seen & ~REPEATED & 1u << tag.tag)
			return KILN_E_FORMAT;
		seen |= 1u << tag.tag;
		job->n_environment += tag.tag == TAG_ENVIRONMENT;
	}
	return (seen & ALL_ONCE) == ALL_ONCE ? KILN_OK : KILN_E_FORMAT;
}

static int take_variable(const struct ki_cl_tag *tag, const char **out_variable)
{
	return ki_cl_tag_text(tag, out_variable) && (*out_variable)[0] != '=' &&
	       strchr(*out_variable, '=');
}

static int take_small(const struct ki_cl_tag *tag, uint32_t *out_value)
{
	uint64_t value;

	if (!ki_cl_tag_number(tag, &value) || value > UINT32_MAX)
		return 0;
	*out_value = (uint32_t)value;
	return 1;
}

static int take_record(const struct ki_cl_tag *tag, struct ki_cl_job *job)
{
	job->record = tag->data;
	job->record_size = tag->size;
	return tag->size > 0 && tag->size <= KILN_KEY_BYTES_MAX;
}

/* All but the recipe. */
static int take_field(struct ki_cl_job_file *file, const struct ki_cl_tag *tag)
{
	struct ki_cl_job *job = &file->job;

	switch (tag->tag) {
	case TAG_RECORD:
		return take_record(tag, job);
	case TAG_PLATFORM:
		return ki_cl_tag_text(tag, &job->platform_name);
	case TAG_DRIVER:
		return ki_cl_tag_text(tag, &job->driver);
	case TAG_DEVICES:
		return take_small(tag, &job->n_devices) && job->n_devices > 0;
	case TAG_DIRECTORY:
		return ki_cl_tag_text(tag, &job->directory);
	case TAG_ENVIRONMENT:
		return take_variable(tag,
				     &file->environment[job->n_environment++]);
	case TAG_APPLICATION:
		return ki_cl_tag_text(tag, &job->application);
	case TAG_NAMESPACE:
		return ki_cl_tag_text(tag, &job->name_space);
	case TAG_CREATED:
		return ki_cl_tag_number(tag, &job->created);
	case TAG_BUILD_NS:
		return ki_cl_tag_number(tag, &job->build_ns);
	case TAG_STAGE:
		return take_small(tag, &job->stage);
	case TAG_TRIES:
		return take_small(tag, &job->tries);
	case TAG_WRITER_PID:
		return take_small(tag, &job->writer_pid);
	default:
		return ki_cl_tag_number(tag, &job->writer_start);
	}
}

/* A program from binaries has no key, so nobody can ask for it. */
static enum kiln_status take_recipe(struct ki_cl_job_file *file,
				    const struct ki_cl_tag *tag)
{
	struct ki_cl_recipe *recipe;
	enum kiln_status status =
		ki_cl_recipe_read(tag->data, tag->size, &recipe);

	if (status)
		return status;
	file->job.recipe = recipe;
	return recipe->kind == KI_CL_BINARY ? KILN_E_FORMAT : KILN_OK;
}

static enum kiln_status take_fields(struct ki_cl_job_file *file,
				    struct ki_reader reader)
{
	struct ki_cl_job *job = &file->job;
	enum kiln_status status = KILN_OK;
	struct ki_cl_tag tag;

	file->environment = calloc((size_t)job->n_environment + 1,
				   sizeof(*file->environment));
	if (!file->environment)
		return KILN_E_NO_MEMORY;
	job->environment = file->environment;
	job->n_environment = 0;
	while (reader.size && !status) {
		if (!ki_cl_tag_next(&reader, &tag))
			return KILN_E_FORMAT;
		if (tag.tag == TAG_RECIPE)
			status = take_recipe(file, &tag);
		else if (!take_field(file, &tag))
			status = KILN_E_FORMAT;
	}
	return status;
}

enum kiln_status ki_cl_job_parse(void *bytes, size_t size,
				 struct ki_cl_job_file **out_file)
{
	struct ki_cl_job_file *file;
	struct ki_reader reader;
	enum kiln_status status = check_header(bytes, size);

	if (status)
		return status;
	file = calloc(1, sizeof(*file));
	if (!file)
		return KILN_E_NO_MEMORY;
	reader = ki_reader((const uint8_t *)bytes + HEADER_BYTES,
			   size - HEADER_BYTES);
	status = count_fields(reader, &file->job);
	if (!status)
		status = take_fields(file, reader);
	if (status) {
		ki_cl_job_free(file);
		return status;
	}
	file->bytes = bytes;
	*out_file = file;
	return KILN_OK;
}

static int read_own_file(const char *path, void **out_bytes, size_t *out_size)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_file_info info;
	void *bytes = NULL;
	int fd, err;

	fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);
	if (fd < 0)
		return fd;
	err = sys->fstat(sys, fd, &info);
	if (err)
		goto out;
	err = -EACCES;
	if (!S_ISREG(info.mode) || info.uid != ki_user_id())
		goto out;
	err = -EBADMSG;
	if (info.size > KI_CL_SPOOL_BYTES_MAX)
		goto out;
	err = -ENOMEM;
	bytes = malloc((size_t)info.size + 1);
	if (!bytes)
		goto out;
	err = ki_pread_all(sys, fd, bytes, (size_t)info.size, 0);
	if (err)
		goto out;
	*out_bytes = bytes;
	*out_size = (size_t)info.size;
	bytes = NULL;
out:
	free(bytes);
	(void)sys->close(sys, fd);
	return err;
}

enum kiln_status ki_cl_job_read(const char *path,
				struct ki_cl_job_file **out_file)
{
	enum kiln_status status;
	void *bytes = NULL;
	size_t size = 0;
	int err = read_own_file(path, &bytes, &size);

	switch (-err) {
	case 0:
		break;
	case ENOENT:
		return KILN_MISS;
	case EACCES:
	case ELOOP:
		return KILN_E_OWNER;
	case EBADMSG:
	case ENODATA:
		return KILN_E_FORMAT;
	default:
		return ki_status_from_errno(err);
	}
	status = ki_cl_job_parse(bytes, size, out_file);
	if (status)
		free(bytes);
	return status;
}

const struct ki_cl_job *ki_cl_job(const struct ki_cl_job_file *file)
{
	return &file->job;
}

void ki_cl_job_free(struct ki_cl_job_file *file)
{
	if (!file)
		return;
	ki_cl_recipe_unref(file->job.recipe);
	free(file->environment);
	free(file->bytes);
	free(file);
}

/* ---- The spool --------------------------------------------------------- */

/*
 * In a shared store a user's spool is spool/UID, and "spool" is made by
 * whoever comes first: as open as the store itself, but sticky.
 */
static void make_shared_parent(const struct ki_sys *sys, const char *spool)
{
	char parent[KI_PATH_MAX], store[KI_PATH_MAX], user[16];
	struct ki_file_info info;
	char *slash;

	snprintf(user, sizeof(user), "%u", ki_user_id());
	if (snprintf(parent, sizeof(parent), "%s", spool) >= KI_PATH_MAX)
		return;
	slash = strrchr(parent, '/');
	if (!slash || strcmp(slash + 1, user))
		return;
	*slash = '\0';
	memcpy(store, parent, sizeof(store));
	slash = strrchr(store, '/');
	if (!slash || slash == store)
		return;
	*slash = '\0';
	if (sys->stat(sys, store, &info) || !(info.mode & 022) ||
	    sys->mkdir(sys, parent, 0700))
		return;
	(void)sys->chmod(sys, parent, 01000 | (info.mode & 0777));
}

static enum kiln_status check_spool(const struct ki_sys *sys, const char *spool)
{
	struct ki_file_info info;
	int err = sys->lstat(sys, spool, &info);

	if (err)
		return err == -ENOENT ? KILN_MISS : ki_status_from_errno(err);
	if (!S_ISDIR(info.mode) || info.uid != ki_user_id() ||
	    (info.mode & 002) ||
	    ((info.mode & 020) && ki_group_is_private(info.gid) <= 0))
		return KILN_E_OWNER;
	return KILN_OK;
}

static enum kiln_status make_spool(const struct ki_sys *sys, const char *spool)
{
	enum kiln_status status = check_spool(sys, spool);
	int err;

	if (status != KILN_MISS)
		return status;
	make_shared_parent(sys, spool);
	err = ki_make_directories(sys, spool);
	if (err)
		return ki_status_from_errno(err);
	status = check_spool(sys, spool);
	return status == KILN_MISS ? KILN_E_IO : status;
}

enum kiln_status ki_cl_spool_make(const char *spool)
{
	return make_spool(&ki_sys_posix, spool);
}

static int ends_with(const char *name, const char *suffix)
{
	size_t size = strlen(name), suffix_size = strlen(suffix);

	return size >= suffix_size &&
	       !strcmp(name + size - suffix_size, suffix);
}

/* DIGEST.job, and what may follow. */
static const char *after_job_name(const char *name)
{
	size_t n = strspn(name, "0123456789abcdef");

	if (n != DIGEST_DIGITS || strncmp(name + n, SUFFIX, strlen(SUFFIX)))
		return NULL;
	return name + n + strlen(SUFFIX);
}

static int is_job(const char *name)
{
	const char *rest = after_job_name(name);

	return rest && !*rest;
}

static int is_temporary(const char *name)
{
	const char *rest = after_job_name(name);

	return rest && *rest == '.' && ends_with(rest, TEMPORARY_SUFFIX);
}

static int writer_is_alive(const char *name)
{
	unsigned long long start;
	int pid;

	return sscanf(after_job_name(name), ".%d.%llu.", &pid, &start) == 2 &&
	       ki_process_alive(pid, start);
}

static int is_past(const struct ki_file_info *info, uint64_t now_ns,
		   uint64_t seconds_max)
{
	int64_t age = (int64_t)now_ns - info->mtime_ns;

	return (uint64_t)(age < 0 ? -age : age) / NS > seconds_max;
}

static int is_over(const char *name, const struct ki_file_info *info,
		   uint64_t now_ns)
{
	if (is_job(name))
		return is_past(info, now_ns, KI_CL_JOB_SECONDS_MAX);
	return is_past(info, now_ns, TEMPORARY_SECONDS_MAX) &&
	       !writer_is_alive(name);
}

struct listed {
	char *path;
	int64_t mtime_ns;
};

struct walk {
	uint64_t bytes; /* as the bound counts */
	int lists;	/* whether jobs are wanted: */
	struct listed *jobs;
	size_t n_jobs;
	size_t capacity;
};

static void walk_fini(struct walk *walk)
{
	while (walk->n_jobs)
		free(walk->jobs[--walk->n_jobs].path);
	free(walk->jobs);
}

static int list_job(struct walk *walk, const char *path, int64_t mtime_ns)
{
	if (walk->n_jobs == walk->capacity) {
		size_t capacity = walk->capacity ? 2 * walk->capacity : 16;
		struct listed *jobs =
			realloc(walk->jobs, capacity * sizeof(*jobs));

		if (!jobs)
			return -ENOMEM;
		walk->jobs = jobs;
		walk->capacity = capacity;
	}
	walk->jobs[walk->n_jobs].mtime_ns = mtime_ns;
	walk->jobs[walk->n_jobs].path = strdup(path);
	return walk->jobs[walk->n_jobs++].path ? 0 : -ENOMEM;
}

static int visit(const struct ki_sys *sys, const char *spool, const char *name,
		 uint64_t now_ns, struct walk *walk)
{
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	if (!is_job(name) && !is_temporary(name))
		return 0;
	if (ki_path_join(path, spool, name) || sys->lstat(sys, path, &info) ||
	    !S_ISREG(info.mode))
		return 0;
	if (is_over(name, &info, now_ns) && !sys->unlink(sys, path))
		return 0;
	walk->bytes +=
		info.size > info.blocks_bytes ? info.size : info.blocks_bytes;
	if (!walk->lists || !is_job(name))
		return 0;
	return list_job(walk, path, info.mtime_ns);
}

static int walk_spool(const struct ki_sys *sys, const char *spool,
		      struct walk *walk)
{
	uint64_t now_ns = sys->realtime_ns(sys);
	struct ki_dir *dir;
	const char *name;
	int err = sys->opendir(sys, spool, &dir);

	if (err)
		return err;
	while ((err = sys->readdir(sys, dir, &name)) > 0) {
		err = visit(sys, spool, name, now_ns, walk);
		if (err)
			break;
	}
	sys->closedir(sys, dir);
	return err;
}

static int by_age(const void *a, const void *b)
{
	const struct listed *left = a, *right = b;

	if (left->mtime_ns != right->mtime_ns)
		return left->mtime_ns < right->mtime_ns ? -1 : 1;
	return strcmp(left->path, right->path);
}

enum kiln_status ki_cl_jobs(const char *spool, char ***out_paths,
			    size_t *out_n_paths)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct walk walk = { .lists = 1 };
	enum kiln_status status = check_spool(sys, spool);
	char **paths;
	size_t i;

	if (status < 0)
		return status;
	if (status == KILN_OK) {
		int err = walk_spool(sys, spool, &walk);

		status = err == -ENOENT ? KILN_OK : ki_status_from_errno(err);
		if (status)
			goto out;
	}
	status = KILN_E_NO_MEMORY;
	paths = calloc(walk.n_jobs + 1, sizeof(*paths));
	if (!paths)
		goto out;
	if (walk.n_jobs)
		qsort(walk.jobs, walk.n_jobs, sizeof(*walk.jobs), by_age);
	for (i = 0; i < walk.n_jobs; i++)
		paths[i] = walk.jobs[i].path;
	*out_paths = paths;
	*out_n_paths = walk.n_jobs;
	walk.n_jobs = 0;
	status = KILN_OK;
out:
	walk_fini(&walk);
	return status;
}

/* ---- Writing ----------------------------------------------------------- */

static int write_temporary(const struct ki_sys *sys, const char *path,
			   const struct ki_bytes *bytes,
			   char out_temporary[KI_PATH_MAX])
{
	static _Atomic unsigned counter;
	int pid = ki_process_id(), fd, err, n;

	n = snprintf(out_temporary, KI_PATH_MAX, "%s.%d.%llu.%u%s", path, pid,
		     (unsigned long long)ki_process_start(pid),
		     atomic_fetch_add(&counter, 1), TEMPORARY_SUFFIX);
	if (n < 0 || n >= KI_PATH_MAX)
		return -ENAMETOOLONG;
	if (bytes->size > ki_file_size_max())
		return -EFBIG;
	fd = sys->open(sys, out_temporary,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE |
			       KI_OPEN_NOFOLLOW,
		       0600);
	if (fd < 0)
		return fd;
	err = ki_pwrite_all(sys, fd, bytes->data, bytes->size, 0);
	if (sys->close(sys, fd) && !err)
		err = -EIO;
	if (err)
		(void)sys->unlink(sys, out_temporary);
	return err;
}

/* The temporary is gone afterwards, whatever happens. */
static int publish(const struct ki_sys *sys, const char *temporary,
		   const char *path)
{
	struct ki_file_info info;
	int err = sys->link(sys, temporary, path);

	if (err == -EPERM || err == -EOPNOTSUPP || err == -ENOSYS) {
		/* No links here: two writers of one key may both succeed,
		   with the same job. */
		if (sys->lstat(sys, path, &info) == -ENOENT &&
		    !sys->rename(sys, temporary, path))
			return 0;
		err = -EEXIST;
	}
	(void)sys->unlink(sys, temporary);
	return err;
}

/*
 * Counting a spool takes a look at each of its files: 30 ms when it is full of
 * small ones.  So a process may write a little for each time that it counts,
 * the less the fuller it is; and what finds no room is not tried again at once.
 * Of this process, for the spool that it counted last.
 */
static struct ki_mutex allowance_mutex = KI_MUTEX_INIT(SYS);
static struct {
	uint64_t spool; /* hash of its path and of the process */
	uint64_t bytes;
	uint64_t refused_bytes; /* there is no room for so much */
	uint64_t refused_until_ns;
} allowance KI_GUARDED_BY(allowance_mutex);

static uint64_t spool_of_process(const char *spool)
{
	return ki_xxh3_64(spool, strlen(spool)) + (uint64_t)ki_process_id();
}

static int take_allowance(const char *spool, uint64_t bytes)
{
	int taken;

	ki_mutex_lock(&allowance_mutex);
	taken = allowance.spool == spool_of_process(spool) &&
		allowance.bytes >= bytes;
	if (taken)
		allowance.bytes -= bytes;
	ki_mutex_unlock(&allowance_mutex);
	return taken;
}

static int was_refused(const struct ki_sys *sys, const char *spool,
		       uint64_t bytes)
{
	int refused;

	ki_mutex_lock(&allowance_mutex);
	refused = allowance.spool == spool_of_process(spool) &&
		  bytes >= allowance.refused_bytes &&
		  sys->monotonic_ns(sys) < allowance.refused_until_ns;
	ki_mutex_unlock(&allowance_mutex);
	return refused;
}

/* After counting. */
static void set_allowance(const struct ki_sys *sys, const char *spool,
			  uint64_t used, uint64_t bytes)
{
	uint64_t room =
		used < KI_CL_SPOOL_BYTES_MAX ? KI_CL_SPOOL_BYTES_MAX - used : 0;
	uint64_t part = room / ALLOWANCE_PART;

	if (part < ALLOWANCE_BYTES_MIN)
		part = room < ALLOWANCE_BYTES_MIN ? room : ALLOWANCE_BYTES_MIN;
	ki_mutex_lock(&allowance_mutex);
	allowance.spool = spool_of_process(spool);
	allowance.bytes =
		part < ALLOWANCE_BYTES_MAX ? part : ALLOWANCE_BYTES_MAX;
	allowance.refused_bytes = bytes;
	allowance.refused_until_ns =
		used > KI_CL_SPOOL_BYTES_MAX
			? sys->monotonic_ns(sys) + REFUSED_NS
			: 0;
	ki_mutex_unlock(&allowance_mutex);
}

/* With the temporary there. */
static enum kiln_status check_room(const struct ki_sys *sys, const char *spool,
				   uint64_t size)
{
	uint64_t bytes = (size | 4095) + 1;
	struct walk walk = { .lists = 0 };
	int err;

	if (take_allowance(spool, bytes))
		return KILN_OK;
	err = walk_spool(sys, spool, &walk);
	if (err)
		return ki_status_from_errno(err);
	set_allowance(sys, spool, walk.bytes, bytes);
	return walk.bytes > KI_CL_SPOOL_BYTES_MAX ? KILN_E_FULL : KILN_OK;
}

/*
 * What this process has tried to write, whatever came of it, each where the last
 * digits of a hash of its spool and digest say.  Whoever finds an entry that may be
 * better asks first: to look whether the file is there takes what surrounds the build,
 * and a system call.
 */
static _Atomic uint64_t written[N_WRITTEN];

static uint64_t name_of(const char *spool, const uint8_t *digest)
{
	const struct ki_piece pieces[] = { { spool, strlen(spool) },
					   { digest, KILN_DIGEST_BYTES } };

	return ki_xxh3_64_pieces(pieces, 2);
}

int ki_cl_job_was_written(const char *spool,
			  const uint8_t digest[KILN_DIGEST_BYTES])
{
	uint64_t name = name_of(spool, digest);

	return atomic_load_explicit(&written[name % N_WRITTEN],
				    memory_order_relaxed) == name;
}

static void note_written(const char *spool, const struct ki_cl_job *job)
{
	uint8_t digest[KILN_DIGEST_BYTES];
	uint64_t name;

	ki_xxh3_128(job->record, job->record_size, digest);
	name = name_of(spool, digest);
	atomic_store_explicit(&written[name % N_WRITTEN], name,
			      memory_order_relaxed);
}

static void forget_written(const char *spool, const void *record,
			   size_t record_size)
{
	uint8_t digest[KILN_DIGEST_BYTES];
	uint64_t name;

	ki_xxh3_128(record, record_size, digest);
	name = name_of(spool, digest);
	(void)atomic_compare_exchange_strong(&written[name % N_WRITTEN], &name,
					     0);
}

static enum kiln_status path_of(const char *spool, const void *record,
				size_t record_size, char out[KI_PATH_MAX])
{
	uint8_t digest[KILN_DIGEST_BYTES];
	char name[DIGEST_DIGITS + sizeof(SUFFIX)];

	ki_xxh3_128(record, record_size, digest);
	ki_hex(digest, sizeof(digest), name);
	memcpy(name + DIGEST_DIGITS, SUFFIX, sizeof(SUFFIX));
	return ki_status_from_errno(ki_path_join(out, spool, name));
}

static struct ki_cl_job signed_by_writer(const struct ki_cl_job *job)
{
	struct ki_cl_job own = *job;

	if (!own.writer_pid) {
		own.writer_pid = (uint32_t)ki_process_id();
		own.writer_start = ki_process_start(ki_process_id());
	}
	return own;
}

enum kiln_status ki_cl_job_write_on(const struct ki_sys *sys, const char *spool,
				    const struct ki_cl_job *job)
{
	struct ki_cl_job own = signed_by_writer(job);
	char path[KI_PATH_MAX], temporary[KI_PATH_MAX];
	struct ki_file_info info;
	struct ki_bytes bytes;
	enum kiln_status status;
	int err;

	ki_bytes_init(&bytes);
	status = ki_cl_recipe_is_whole(job->recipe)
			 ? path_of(spool, job->record, job->record_size, path)
			 : KILN_E_UNSUPPORTED;
	if (!status)
		status = make_spool(sys, spool);
	if (!status && !sys->lstat(sys, path, &info))
		status = KILN_EXISTS;
	if (!status)
		status = encode(&own, own.tries, &bytes);
	if (!status && was_refused(sys, spool, (bytes.size | 4095) + 1))
		status = KILN_E_FULL;
	if (!status)
		status = ki_status_from_errno(
			write_temporary(sys, path, &bytes, temporary));
	if (status)
		goto out;
	status = check_room(sys, spool, bytes.size);
	if (status) {
		(void)sys->unlink(sys, temporary);
		goto out;
	}
	err = publish(sys, temporary, path);
	status = err == -EEXIST ? KILN_EXISTS : ki_status_from_errno(err);
out:
	note_written(spool, job);
	ki_bytes_fini(&bytes);
	return status;
}

enum kiln_status ki_cl_job_write(const char *spool, const struct ki_cl_job *job)
{
	return ki_cl_job_write_on(&ki_sys_posix, spool, job);
}

void ki_cl_job_remove(const char *spool, const void *record, size_t record_size)
{
	char path[KI_PATH_MAX];

	forget_written(spool, record, record_size);
	if (!path_of(spool, record, record_size, path))
		(void)ki_sys_posix.unlink(&ki_sys_posix, path);
}

enum kiln_status ki_cl_job_set_tries(const char *path,
				     const struct ki_cl_job *job,
				     uint32_t tries)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char temporary[KI_PATH_MAX];
	struct ki_file_info info;
	struct ki_bytes bytes;
	enum kiln_status status;
	int err;

	if (sys->lstat(sys, path, &info))
		return KILN_MISS;
	ki_bytes_init(&bytes);
	status = encode(job, tries, &bytes);
	if (status)
		goto out;
	err = write_temporary(sys, path, &bytes, temporary);
	if (!err) {
		err = sys->rename(sys, temporary, path);
		if (err)
			(void)sys->unlink(sys, temporary);
	}
	status = ki_status_from_errno(err);
out:
	ki_bytes_fini(&bytes);
	return status;
}
