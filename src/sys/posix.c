/* SPDX-License-Identifier: MIT */

/* The real system, behind the table of sys.h. */

#include "sys/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "sys/sockets.h"

#define PIECES_MAX 8

/* ---- Descriptors --------------------------------------------------------- */

static int open_flags(unsigned flags)
{
	int result = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

	if ((flags & KI_OPEN_READ) && (flags & KI_OPEN_WRITE))
		result |= O_RDWR;
	else if (flags & KI_OPEN_WRITE)
		result |= O_WRONLY;
	else
		result |= O_RDONLY;
	if (flags & KI_OPEN_CREATE)
		result |= O_CREAT;
	if (flags & KI_OPEN_EXCLUSIVE)
		result |= O_EXCL;
	if (flags & KI_OPEN_NOFOLLOW)
		result |= O_NOFOLLOW;
	if (flags & KI_OPEN_APPEND)
		result |= O_APPEND;
	if (flags & KI_OPEN_NO_ATIME)
		result |= O_NOATIME;
	return result;
}

/* A program that closed its standard descriptors must not find our file
   under their numbers. */
int ki_above_standard(int fd)
{
	int higher, err;

	if (fd < 0 || fd > 2)
		return fd;
	higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	err = errno;
	close(fd);
	return higher < 0 ? -err : higher;
}

/* What others put there is as good as a link of theirs.  One that is only read
   may be about to have another name. */
static int is_own(int fd, unsigned flags)
{
	struct stat info;

	return !fstat(fd, &info) && S_ISREG(info.st_mode) &&
	       info.st_uid == geteuid() &&
	       !(info.st_mode & (S_IWGRP | S_IWOTH)) &&
	       (!(flags & KI_OPEN_WRITE) || info.st_nlink <= 1);
}

static int open_in(int directory, const char *name, unsigned flags,
		   unsigned mode)
{
	int fd;

	do {
		fd = openat(directory, name, open_flags(flags), (mode_t)mode);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0 && errno == EPERM && (flags & KI_OPEN_NO_ATIME))
		return open_in(directory, name, flags & ~KI_OPEN_NO_ATIME,
			       mode);
	if (fd < 0)
		return -errno;
	if ((flags & KI_OPEN_OWN) && !is_own(fd, flags)) {
		close(fd);
		return -ELOOP;
	}
	return ki_above_standard(fd);
}

static int posix_open(const struct ki_sys *sys, const char *path,
		      unsigned flags, unsigned mode)
{
	return open_in(AT_FDCWD, path, flags, mode);
}

static int posix_open_in(const struct ki_sys *sys, int directory,
			 const char *name, unsigned flags, unsigned mode)
{
	return open_in(directory, name, flags, mode);
}

static int posix_close(const struct ki_sys *sys, int fd)
{
	/* On Linux the descriptor is gone whatever close() answers. */
	return close(fd) && errno != EINTR ? -errno : 0;
}

static ssize_t posix_pread(const struct ki_sys *sys, int fd, void *data,
			   size_t size, uint64_t offset)
{
	ssize_t n;

	do {
		n = pread(fd, data, size, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/*
 * Whether a write would pass RLIMIT_FSIZE: the system would send SIGXFSZ, which
 * ends programs that know nothing of us.
 */
static int passes_limit(uint64_t end)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_FSIZE, &limit) &&
	       limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur;
}

static ssize_t posix_pwritev(const struct ki_sys *sys, int fd,
			     const struct ki_piece *pieces, int n_pieces,
			     uint64_t offset)
{
	struct iovec vectors[PIECES_MAX];
	uint64_t end = offset;
	ssize_t n;
	int i;

	if (n_pieces > PIECES_MAX)
		return -EINVAL;
	for (i = 0; i < n_pieces; i++) {
		end += pieces[i].size;
		vectors[i].iov_base = (void *)(uintptr_t)pieces[i].data;
		vectors[i].iov_len = pieces[i].size;
	}
	if (passes_limit(end))
		return -EFBIG;
	do {
		n = pwritev(fd, vectors, n_pieces, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Not posix_fallocate(): libc falls back to writing zeros, over what other
   processes write at the same time. */
static int posix_fallocate_blocks(const struct ki_sys *sys, int fd,
				  uint64_t offset, uint64_t size)
{
	int result;

	if (passes_limit(offset + size))
		return -EFBIG;
	do {
		result = fallocate(fd, 0, (off_t)offset, (off_t)size);
	} while (result && errno == EINTR);
	return result ? -errno : 0;
}

static int posix_punch_hole(const struct ki_sys *sys, int fd, uint64_t offset,
			    uint64_t size)
{
	int result;

	do {
		result = fallocate(fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   (off_t)offset, (off_t)size);
	} while (result && errno == EINTR);
	return result ? -errno : 0;
}

static int posix_fsync(const struct ki_sys *sys, int fd)
{
	int result;

	do {
		result = fsync(fd);
	} while (result && errno == EINTR);
	return result ? -errno : 0;
}

/* ---- Names ----------------------------------------------------------------- */

/* No local file system is interrupted in these; one in user space may be. */

static int64_t nanoseconds(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int info_of(int result, const struct stat *st,
		   struct ki_file_info *out_info)
{
	if (result)
		return -errno;
	*out_info = (struct ki_file_info){
		.device = st->st_dev,
		.inode = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks_bytes = (uint64_t)st->st_blocks * 512,
		.n_links = st->st_nlink,
		.mtime_ns = nanoseconds(st->st_mtim),
		.ctime_ns = nanoseconds(st->st_ctim),
		.atime_ns = nanoseconds(st->st_atim),
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
	};
	return 0;
}

static int posix_fstat(const struct ki_sys *sys, int fd,
		       struct ki_file_info *out_info)
{
	struct stat st;

	return info_of(TEMP_FAILURE_RETRY(fstat(fd, &st)), &st, out_info);
}

#define SIZE_MASK (STATX_INO | STATX_SIZE | STATX_NLINK)

/* Without the times, and of the rest what the mask says: of a path, or of a
   descriptor and "". */
static int measure(int fd, const char *path, unsigned mask,
		   struct ki_file_info *out_info)
{
	const int flags = *path ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
	struct ki_file_info info = { 0 };
	struct statx stx;
	struct stat st;
	int err = 0;

	if (!TEMP_FAILURE_RETRY(statx(fd, path, flags, mask, &stx))) {
		info.device = makedev(stx.stx_dev_major, stx.stx_dev_minor);
		info.inode = stx.stx_ino;
		info.size = stx.stx_size;
		info.n_links = stx.stx_nlink;
	} else if (errno != ENOSYS && errno != EPERM) {
		err = -errno;
	} else {
		/* Some sandboxes know no statx. */
		err = info_of(TEMP_FAILURE_RETRY(fstatat(fd, path, &st, flags)),
			      &st, &info);
	}
	if (!err)
		*out_info = (struct ki_file_info){ .device = info.device,
						   .inode = info.inode,
						   .size = info.size,
						   .n_links = info.n_links };
	return err;
}

static int posix_fidentify(const struct ki_sys *sys, int fd,
			   uint64_t *out_device, uint64_t *out_inode)
{
	struct ki_file_info info;
	int err = measure(fd, "", STATX_INO, &info);

	if (err)
		return err;
	*out_device = info.device;
	*out_inode = info.inode;
	return 0;
}

static int posix_fmeasure(const struct ki_sys *sys, int fd,
			  struct ki_file_info *out_info)
{
	return measure(fd, "", SIZE_MASK, out_info);
}

static int posix_measure(const struct ki_sys *sys, const char *path,
			 struct ki_file_info *out_info)
{
	return *path ? measure(AT_FDCWD, path, SIZE_MASK, out_info) : -ENOENT;
}

static int posix_stat(const struct ki_sys *sys, const char *path,
		      struct ki_file_info *out_info)
{
	struct stat st;

	return info_of(TEMP_FAILURE_RETRY(stat(path, &st)), &st, out_info);
}

static int posix_lstat(const struct ki_sys *sys, const char *path,
		       struct ki_file_info *out_info)
{
	struct stat st;

	return info_of(TEMP_FAILURE_RETRY(lstat(path, &st)), &st, out_info);
}

static int posix_link(const struct ki_sys *sys, const char *from,
		      const char *to)
{
	return TEMP_FAILURE_RETRY(link(from, to)) ? -errno : 0;
}

static int posix_rename(const struct ki_sys *sys, const char *from,
			const char *to)
{
	return TEMP_FAILURE_RETRY(rename(from, to)) ? -errno : 0;
}

static int posix_rename_new(const struct ki_sys *sys, const char *from,
			    const char *to)
{
	if (!TEMP_FAILURE_RETRY(
		    renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	return ki_rename_by_link(sys, from, to);
}

static int posix_unlink(const struct ki_sys *sys, const char *path)
{
	return TEMP_FAILURE_RETRY(unlink(path)) ? -errno : 0;
}

static int posix_mkdir(const struct ki_sys *sys, const char *path,
		       unsigned mode)
{
	return TEMP_FAILURE_RETRY(mkdir(path, (mode_t)mode)) ? -errno : 0;
}

static int posix_rmdir(const struct ki_sys *sys, const char *path)
{
	return TEMP_FAILURE_RETRY(rmdir(path)) ? -errno : 0;
}

static int posix_chmod(const struct ki_sys *sys, const char *path,
		       unsigned mode)
{
	return TEMP_FAILURE_RETRY(chmod(path, (mode_t)mode)) ? -errno : 0;
}

static int posix_touch(const struct ki_sys *sys, const char *path)
{
	return TEMP_FAILURE_RETRY(
		       utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW))
		       ? -errno
		       : 0;
}

static int posix_set_access_time(const struct ki_sys *sys, int fd, int64_t ns)
{
	const int64_t rest = (ns % 1000000000 + 1000000000) % 1000000000;
	const struct timespec times[2] = {
		{ .tv_sec = (time_t)((ns - rest) / 1000000000),
		  .tv_nsec = (long)rest },
		{ .tv_nsec = UTIME_OMIT },
	};

	return TEMP_FAILURE_RETRY(futimens(fd, times)) ? -errno : 0;
}

/* ---- Directories ----------------------------------------------------------- */

static int posix_opendir(const struct ki_sys *sys, const char *path,
			 struct ki_dir **out_dir)
{
	int fd, err;
	DIR *dir;

	do {
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return -errno;
	fd = ki_above_standard(fd);
	if (fd < 0)
		return fd;
	do {
		dir = fdopendir(fd);
	} while (!dir && errno == EINTR);
	if (!dir) {
		err = -errno;
		close(fd);
		return err;
	}
	*out_dir = (struct ki_dir *)dir;
	return 0;
}

static int posix_readdir(const struct ki_sys *sys, struct ki_dir *dir,
			 const char **out_name)
{
	struct dirent *entry;

	do {
		errno = 0;
		entry = readdir((DIR *)dir);
		if (!entry && errno != EINTR)
			return -errno;
	} while (!entry || !strcmp(entry->d_name, ".") ||
		 !strcmp(entry->d_name, ".."));
	*out_name = entry->d_name;
	return 1;
}

static int posix_lstat_in(const struct ki_sys *sys, struct ki_dir *dir,
			  const char *name, struct ki_file_info *out_info)
{
	struct stat st;

	return info_of(TEMP_FAILURE_RETRY(fstatat(dirfd((DIR *)dir), name, &st,
						  AT_SYMLINK_NOFOLLOW)),
		       &st, out_info);
}

static void posix_closedir(const struct ki_sys *sys, struct ki_dir *dir)
{
	closedir((DIR *)dir);
}

/* ---- Mappings and locks ------------------------------------------------------ */

static int posix_map(const struct ki_sys *sys, int fd, uint64_t offset,
		     size_t size, unsigned flags, void **out_data)
{
	int protection = PROT_READ;
	void *data;

	if (flags & KI_MAP_SHARED_WRITE)
		protection |= PROT_WRITE;
	do {
		data = mmap(NULL, size, protection, MAP_SHARED, fd,
			    (off_t)offset);
	} while (data == MAP_FAILED && errno == EINTR);
	if (data == MAP_FAILED)
		return -errno;
	*out_data = data;
	return 0;
}

static void posix_unmap(const struct ki_sys *sys, void *data, size_t size)
{
	munmap(data, size);
}

static size_t posix_page_bytes(const struct ki_sys *sys)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static int posix_populate(const struct ki_sys *sys, const void *data,
			  size_t size)
{
	uintptr_t from = (uintptr_t)data;
	uintptr_t rest = from & (posix_page_bytes(sys) - 1);

	return TEMP_FAILURE_RETRY(madvise((void *)(from - rest), size + rest,
					  MADV_POPULATE_READ))
		       ? -errno
		       : 0;
}

static int set_lock(int fd, short type, uint64_t offset, uint64_t size)
{
	struct flock lock = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)offset,
		.l_len = (off_t)size,
	};
	int result;

	do {
		result = fcntl(fd, F_OFD_SETLK, &lock);
	} while (result && errno == EINTR);
	if (!result)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

static int posix_try_lock(const struct ki_sys *sys, int fd,
			  enum ki_lock_kind kind, uint64_t offset,
			  uint64_t size)
{
	return set_lock(fd, kind == KI_LOCK_SHARED ? F_RDLCK : F_WRLCK, offset,
			size);
}

static int posix_unlock(const struct ki_sys *sys, int fd, uint64_t offset,
			uint64_t size)
{
	return set_lock(fd, F_UNLCK, offset, size);
}

static int posix_try_flock(const struct ki_sys *sys, int fd,
			   enum ki_lock_kind kind)
{
	const int operation = kind == KI_LOCK_SHARED ? LOCK_SH : LOCK_EX;

	return TEMP_FAILURE_RETRY(flock(fd, operation | LOCK_NB)) ? -errno : 0;
}

static int posix_file_system(const struct ki_sys *sys, const char *path,
			     enum ki_file_system *out_kind)
{
	/* Measured to behave: locks, link, fallocate, coherent mappings. */
	static const uint32_t local[] = {
		0xef53,	    /* ext2, ext3, ext4 */
		0x58465342, /* xfs */
		0x9123683e, /* btrfs */
		0xf2f52010, /* f2fs */
		0x01021994, /* tmpfs */
		0x794c7630, /* overlayfs */
	};
	struct statfs st;
	int result;
	size_t i;

	do {
		result = statfs(path, &st);
	} while (result && errno == EINTR);
	if (result)
		return -errno;
	*out_kind = KI_FS_UNKNOWN;
	for (i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if ((uint32_t)st.f_type == local[i])
			*out_kind = KI_FS_LOCAL;
	return 0;
}

int ki_disk_room(const char *path, uint64_t *out_bytes)
{
	struct statfs st;
	int result;

	do {
		result = statfs(path, &st);
	} while (result && errno == EINTR);
	if (result)
		return -errno;
	/* File systems without a table of files say that it has none. */
	*out_bytes = st.f_files && !st.f_ffree
			     ? 0
			     : (uint64_t)st.f_bavail * (uint64_t)st.f_bsize;
	return 0;
}

/* ---- Time and chance --------------------------------------------------------- */

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)nanoseconds(t);
}

static uint64_t posix_monotonic_ns(const struct ki_sys *sys)
{
	return now(CLOCK_MONOTONIC);
}

static uint64_t posix_coarse_ns(const struct ki_sys *sys)
{
	return now(CLOCK_MONOTONIC_COARSE);
}

static uint64_t posix_realtime_ns(const struct ki_sys *sys)
{
	return now(CLOCK_REALTIME);
}

static void posix_sleep_ns(const struct ki_sys *sys, uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000) };

	nanosleep(&t, NULL);
}

static int posix_random(const struct ki_sys *sys, void *data, size_t size)
{
	uint8_t *place = data;

	while (size) {
		ssize_t n = getrandom(place, size, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		place += n;
		size -= (size_t)n;
	}
	return 0;
}

const struct ki_sys ki_sys_posix = {
	.open = posix_open,
	.open_in = posix_open_in,
	.close = posix_close,
	.pread = posix_pread,
	.pwritev = posix_pwritev,
	.fallocate = posix_fallocate_blocks,
	.punch_hole = posix_punch_hole,
	.fsync = posix_fsync,
	.fstat = posix_fstat,
	.fidentify = posix_fidentify,
	.fmeasure = posix_fmeasure,
	.measure = posix_measure,
	.stat = posix_stat,
	.lstat = posix_lstat,
	.link = posix_link,
	.rename = posix_rename,
	.rename_new = posix_rename_new,
	.unlink = posix_unlink,
	.mkdir = posix_mkdir,
	.rmdir = posix_rmdir,
	.chmod = posix_chmod,
	.touch = posix_touch,
	.set_access_time = posix_set_access_time,
	.opendir = posix_opendir,
	.readdir = posix_readdir,
	.lstat_in = posix_lstat_in,
	.closedir = posix_closedir,
	.map = posix_map,
	.unmap = posix_unmap,
	.page_bytes = posix_page_bytes,
	.populate = posix_populate,
	.try_lock = posix_try_lock,
	.unlock = posix_unlock,
	.try_flock = posix_try_flock,
	.file_system = posix_file_system,
	.monotonic_ns = posix_monotonic_ns,
	.coarse_ns = posix_coarse_ns,
	.realtime_ns = posix_realtime_ns,
	.sleep_ns = posix_sleep_ns,
	.random = posix_random,
	.connect = ki_posix_connect,
	.listen = ki_posix_listen,
	.send = ki_posix_send,
	.recv = ki_posix_recv,
	.wait = ki_posix_wait,
	.sealed_memory = ki_posix_sealed_memory,
};

/* ---- On top of the table ------------------------------------------------------ */

/* Two names for a moment.  Once the new one stands, others may use it: that the
   old one stays, too, does not undo that. */
int ki_rename_by_link(const struct ki_sys *sys, const char *from,
		      const char *to)
{
	int err = sys->link(sys, from, to);

	if (!err)
		(void)sys->unlink(sys, from);
	return err;
}

int ki_pread_all(const struct ki_sys *sys, int fd, void *data, size_t size,
		 uint64_t offset)
{
	uint8_t *place = data;

	while (size) {
		ssize_t n = sys->pread(sys, fd, place, size, offset);
		if (n < 0)
			return (int)n;
		if (!n)
			return -ENODATA;
		place += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int ki_pwritev_all(const struct ki_sys *sys, int fd, struct ki_piece *pieces,
		   int n_pieces, uint64_t offset)
{
	for (;;) {
		ssize_t n;

		while (n_pieces && !pieces->size) {
			pieces++;
			n_pieces--;
		}
		if (!n_pieces)
			return 0;
		n = sys->pwritev(sys, fd, pieces, n_pieces, offset);
		if (n < 0)
			return (int)n;
		if (!n)
			return -EIO;
		offset += (uint64_t)n;
		while (n) {
			size_t step = (size_t)n < pieces->size ? (size_t)n
							       : pieces->size;
			if (step)
				pieces->data =
					(const uint8_t *)pieces->data + step;
			pieces->size -= step;
			n -= (ssize_t)step;
			if (!pieces->size) {
				pieces++;
				n_pieces--;
			}
		}
	}
}

int ki_pwrite_all(const struct ki_sys *sys, int fd, const void *data,
		  size_t size, uint64_t offset)
{
	struct ki_piece piece = { data, size };

	return ki_pwritev_all(sys, fd, &piece, 1, offset);
}

int ki_read_whole(const struct ki_sys *sys, int fd, uint64_t size_max,
		  void **out_data, size_t *out_size)
{
	struct ki_file_info info;
	uint8_t *data;
	int err = sys->fstat(sys, fd, &info);

	if (err)
		return err;
	if (!S_ISREG(info.mode))
		return -EINVAL;
	if (info.size > size_max)
		return -EFBIG;
	data = malloc((size_t)info.size + 1);
	if (!data)
		return -ENOMEM;
	err = ki_pread_all(sys, fd, data, (size_t)info.size, 0);
	if (err) {
		free(data);
		return err;
	}
	data[info.size] = '\0';
	*out_data = data;
	*out_size = (size_t)info.size;
	return 0;
}

int ki_read_file(const struct ki_sys *sys, const char *path, size_t size_max,
		 void **out_data, size_t *out_size)
{
	int fd = sys->open(sys, path, KI_OPEN_READ, 0), err;

	if (fd < 0)
		return fd;
	err = ki_read_whole(sys, fd, size_max, out_data, out_size);
	(void)sys->close(sys, fd);
	return err;
}

int ki_make_directories(const struct ki_sys *sys, const char *path)
{
	char part[KI_PATH_MAX];
	size_t size = strlen(path), i;
	int err = 0;

	if (!size || size >= sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, size + 1);
	for (i = 1; i <= size; i++) {
		if (path[i] != '/' && path[i])
			continue;
		part[i] = '\0';
		err = sys->mkdir(sys, part, 0700);
		part[i] = path[i];
	}
	return err == -EEXIST ? 0 : err;
}

int ki_path_join(char out[KI_PATH_MAX], const char *directory, const char *name)
{
	size_t a = strlen(directory), b = strlen(name);

	if (a + 1 + b >= KI_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(out, directory, a);
	out[a] = '/';
	memcpy(out + a + 1, name, b + 1);
	return 0;
}
