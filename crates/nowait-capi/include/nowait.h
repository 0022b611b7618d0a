/* libnowait: file I/O that does not block the caller. See nowait(3).
 *
 * A function that fails returns a negative errno. Made by cbindgen from crates/nowait-capi: do not edit. */

#ifndef NOWAIT_H
#define NOWAIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <linux/stat.h>

/* C99 without POSIX does not declare it. */
struct timespec;

/*
 The system calls that the process may use: a bit of nw_capabilities.
 */
#define NW_CAN_PREADV2 1

/*
 pwritev2(2).
 */
#define NW_CAN_PWRITEV2 2

/*
 cachestat(2).
 */
#define NW_CAN_CACHESTAT 4

/*
 io_uring_setup(2).
 */
#define NW_CAN_IO_URING 8

/*
 The operation is done: *completion has its result.
 */
#define NW_DONE 0

/*
 The operation is queued: nw_reap will return its completion. Its ticket is in
 completion->ticket.
 */
#define NW_QUEUED 1

/*
 The engine is full: reap, then submit the operation again.
 */
#define NW_FULL 2

/*
 The calling thread has served the operation.
 */
#define NW_BY_CALLER 0

/*
 The ring has served the operation.
 */
#define NW_BY_RING 1

/*
 A worker has served the operation.
 */
#define NW_BY_WORKER 2

/*
 Does nothing.
 */
#define NW_OP_NOP 0

/*
 Reads len bytes at offset into addr: pread(2). flags are RWF_*.
 */
#define NW_OP_READ 1

/*
 Writes len bytes at offset from addr: pwrite(2). flags are RWF_*.
 */
#define NW_OP_WRITE 2

/*
 Reads at offset into the len iovecs at addr: preadv2(2). flags are RWF_*.
 */
#define NW_OP_READV 3

/*
 Writes at offset from the len iovecs at addr: pwritev2(2). flags are RWF_*.
 */
#define NW_OP_WRITEV 4

/*
 fsync(2).
 */
#define NW_OP_FSYNC 5

/*
 fdatasync(2).
 */
#define NW_OP_FDATASYNC 6

/*
 fallocate(2) of len bytes at offset. flags are FALLOC_FL_*.
 */
#define NW_OP_FALLOCATE 7

/*
 posix_fadvise(2) of len bytes at offset. flags are POSIX_FADV_*.
 */
#define NW_OP_FADVISE 8

/*
 sync_file_range(2) of len bytes at offset. flags are SYNC_FILE_RANGE_*.
 */
#define NW_OP_SYNC_FILE_RANGE 9

/*
 Opens the path at addr, relative to file or, if it is null, to the current directory: openat(2).
 flags are O_*, len is the mode. The result is a descriptor with O_CLOEXEC.
 */
#define NW_OP_OPENAT 10

/*
 statx(2) of file, into the struct statx at addr. len is the mask.
 */
#define NW_OP_STATX 11

/*
 Borrows len bytes at offset of mapping into the struct nw_resident at addr, once they are
 resident: nw_mapping(3).
 */
#define NW_OP_MAPPING_LOAD 12

/*
 The file's own position, as offset: read(2) and write(2).
 */
#define NW_OFFSET_CURRENT UINT64_MAX

/*
 io_uring if the kernel and the sandbox allow it, otherwise threads.
 */
#define NW_BACKEND_ANY 0

/*
 An io_uring ring.
 */
#define NW_BACKEND_URING 1

/*
 Worker threads.
 */
#define NW_BACKEND_THREADS 2

/*
 The engine belongs to the thread that makes it, and needs no other thread for its ring.
 */
#define NW_ENGINE_LOCAL 1

/*
 The calling thread asks for the residency before it reads, and never starts the device.
 */
#define NW_ENGINE_STRICT 2

/*
 Each read tries the page cache first, whatever recent tries have found.
 */
#define NW_ENGINE_TRY_ALWAYS 4

/*
 No read tries the page cache first.
 */
#define NW_ENGINE_TRY_NEVER 8

/*
 The device is polled for completions (IORING_SETUP_IOPOLL). For O_DIRECT files alone.
 */
#define NW_ENGINE_POLLED 16

/*
 One worker thread for files has no work. It starts the others: a thread that submits starts none.
 */
#define NW_ENGINE_SPARE_WORKER 32

/*
 cachestat(2) has answered.
 */
#define NW_SOURCE_CACHESTAT 1

/*
 mincore(2) has answered.
 */
#define NW_SOURCE_MINCORE 2

/*
 All bytes were in the page cache: as many as requested, or up to the end of the file.
 */
#define NW_CACHED_ALL 0

/*
 A leading part of the bytes was in the page cache.
 */
#define NW_CACHED_PREFIX 1

/*
 The first byte was not in the page cache.
 */
#define NW_CACHED_NOTHING 2

/*
 The kernel, the sandbox or the filesystem has no RWF_NOWAIT.
 */
#define NW_CACHED_UNSUPPORTED 3

/*
 Nothing was tried, and nothing was read: see nw_file(3) for the reasons (nw_file_pread_cached alone).
 */
#define NW_CACHED_SKIPPED 4

/*
 Follows symbolic links: the metadata is that of their targets, and so are d_type and ino if the
 mask has STATX_TYPE and STATX_INO.
 */
#define NW_SCAN_FOLLOW 1

/*
 Accepts cached attributes of a network filesystem (AT_STATX_DONT_SYNC).
 */
#define NW_SCAN_DONT_SYNC 2

/*
 Returns the entries sorted by name.
 */
#define NW_SCAN_SORT_NAME 4

/*
 Returns the entries in the order of their inode numbers, within each run of entries that are in
 memory together.
 */
#define NW_SCAN_SORT_INODE 8

/*
 Reads the names of extended attributes.
 */
#define NW_SCAN_XATTR_NAMES 16

/*
 Reads the names and values of extended attributes.
 */
#define NW_SCAN_XATTR_VALUES 32

/*
 An engine. A shared engine may be used by all threads, a local one by the thread that made it.
 */
struct nw_engine;

/*
 An open file of the program, with its hit history. The descriptor stays the program's.
 */
struct nw_file;

/*
 A mapped file.
 */
struct nw_mapping;

/*
 A scan of a directory.
 */
struct nw_scan;

/*
 The options of an engine. `size` is set by the program to sizeof(struct nw_engine_options). A
 field that is 0 has its default.
 */
struct nw_engine_options {
  /*
   sizeof(struct nw_engine_options).
   */
  size_t size;
  /*
   NW_ENGINE_LOCAL and so on.
   */
  uint32_t flags;
  /*
   NW_BACKEND_ANY, NW_BACKEND_URING or NW_BACKEND_THREADS.
   */
  uint32_t backend;
  /*
   The number of operations that may be in flight: 1 to 32,768; default 512.
   */
  uint32_t depth;
  /*
   Worker threads for files: 1 to 4,096; default 64. They are started when they are needed.
   */
  uint32_t workers;
  /*
   Worker threads for calls that may block for long: 1 to 4,096; default 512.
   */
  uint32_t blocking_workers;
  /*
   The milliseconds after which the kernel's submission thread sleeps (IORING_SETUP_SQPOLL). 0:
   no such thread.
   */
  uint32_t sqpoll_idle_ms;
  /*
   The bytes of the largest read that is copied from the page cache in the calling thread;
   default 256 KiB.
   */
  uint64_t copy_limit;
};

/*
 An operation. Fields that it does not use are 0.
 */
struct nw_op {
  /*
   NW_OP_READ and so on.
   */
  uint32_t opcode;
  /*
   The flags of the operation.
   */
  uint32_t flags;
  /*
   The file.
   */
  const struct nw_file *file;
  /*
   The memory, the iovecs, the path or the place for the result.
   */
  void *addr;
  /*
   The number of bytes or iovecs.
   */
  uint64_t len;
  /*
   The offset, or NW_OFFSET_CURRENT.
   */
  uint64_t offset;
  /*
   Returned with the completion.
   */
  uint64_t user_data;
  /*
   The nanoseconds after which the operation is stopped, with −ETIME. 0 is no limit.
   */
  uint64_t timeout_ns;
  /*
   The mapping of NW_OP_MAPPING_LOAD, otherwise null.
   */
  const struct nw_mapping *mapping;
};

/*
 The result of an operation.
 */
struct nw_completion {
  /*
   The operation's user_data.
   */
  uint64_t user_data;
  /*
   The number of bytes, the descriptor of NW_OP_OPENAT, 0 for other operations; or −errno.
   */
  int64_t result;
  /*
   The ticket that nw_submit returned, or 0.
   */
  uint64_t ticket;
  /*
   Bytes that came from the page cache.
   */
  uint64_t cached;
  /*
   Bytes that came from the device.
   */
  uint64_t device;
  /*
   Bytes of unknown origin.
   */
  uint64_t unknown;
  /*
   NW_BY_CALLER, NW_BY_RING or NW_BY_WORKER.
   */
  uint32_t served_by;
  /*
   0.
   */
  uint32_t reserved;
};

/*
 The work of an engine since it was made. `size` is set by the program to sizeof(struct
 nw_stats).
 */
struct nw_stats {
  /*
   sizeof(struct nw_stats).
   */
  size_t size;
  /*
   Reads that the page cache served completely, in the calling thread.
   */
  uint64_t hits;
  /*
   Bytes of such reads.
   */
  uint64_t hit_bytes;
  /*
   Reads of which the page cache had a leading part.
   */
  uint64_t prefixes;
  /*
   Tries that found nothing.
   */
  uint64_t misses;
  /*
   Reads that did not try because of the file's history.
   */
  uint64_t skipped;
  /*
   Operations handed to the engine.
   */
  uint64_t handoffs;
  /*
   Operations completed by the ring.
   */
  uint64_t ring;
  /*
   Operations completed by workers.
   */
  uint64_t workers;
  /*
   Submissions to a full engine.
   */
  uint64_t full;
  /*
   Bytes read or written by the engine.
   */
  uint64_t engine_bytes;
  /*
   Operations that failed.
   */
  uint64_t errors;
};

/*
 Bytes of a mapped file that stay in memory, and stay as they are, until nw_resident_release.
 */
struct nw_resident {
  /*
   The first byte. Null after the release.
   */
  const void *data;
  /*
   The number of bytes.
   */
  size_t len;
  /*
   Belongs to the library.
   */
  uint64_t opaque[8];
};

/*
 The pages of a range, by their state. `size` is set by the program to sizeof(struct
 nw_residency).
 */
struct nw_residency {
  /*
   sizeof(struct nw_residency).
   */
  size_t size;
  /*
   Pages of the file that the range touches.
   */
  uint64_t pages;
  /*
   Pages that are cached.
   */
  uint64_t cached;
  /*
   Cached pages that are changed and not yet being written to the device.
   */
  uint64_t dirty;
  /*
   Cached pages that are being written to the device.
   */
  uint64_t writeback;
  /*
   Pages that were cached and were evicted, as far as the kernel remembers.
   */
  uint64_t evicted;
  /*
   Evicted pages that would be kept if they were read again.
   */
  uint64_t recently_evicted;
  /*
   Pages of large holes that were not asked about, and count as not cached.
   */
  uint64_t unasked;
  /*
   NW_SOURCE_CACHESTAT or NW_SOURCE_MINCORE.
   */
  uint32_t source;
  /*
   1 if dirty, writeback, evicted and recently_evicted were counted. mincore(2) does not count
   them.
   */
  uint32_t has_states;
};

/*
 The options of a scan. `size` is set by the program to sizeof(struct nw_scan_options). A field
 that is 0 has its default.
 */
struct nw_scan_options {
  /*
   sizeof(struct nw_scan_options).
   */
  size_t size;
  /*
   NW_SCAN_FOLLOW and so on.
   */
  uint32_t flags;
  /*
   The fields to ask for: STATX_BASIC_STATS and so on. 0: no metadata.
   */
  uint32_t mask;
  /*
   The maximum number of workers.
   */
  uint32_t workers;
  /*
   0.
   */
  uint32_t reserved;
  /*
   The number of entries that are listed and not yet returned; default 65,536.
   */
  uint64_t buffered_entries;
  /*
   The bytes of those; default 32 MiB.
   */
  uint64_t buffered_bytes;
  /*
   The names of the extended attributes to return, ended by a null pointer. Null: all of them.
   */
  const char *const *xattr_names;
};

/*
 One entry, followed by its metadata, name and attributes. nw_dirent_name, nw_dirent_statx and
 nw_dirent_xattr read those.
 */
struct nw_dirent {
  /*
   The bytes of this record. The next record begins after them.
   */
  uint32_t reclen;
  /*
   The bytes of the name, without its NUL.
   */
  uint16_t name_len;
  /*
   The file type: DT_REG and so on.
   */
  uint8_t d_type;
  /*
   0.
   */
  uint8_t reserved;
  /*
   The inode number.
   */
  uint64_t ino;
  /*
   −errno if the metadata could not be read.
   */
  int32_t stat_error;
  /*
   −errno if the attributes could not be read.
   */
  int32_t xattr_error;
  /*
   The offset of the name, from the start of the record.
   */
  uint32_t name_offset;
  /*
   The offset of the struct statx. 0 if there is none.
   */
  uint32_t stat_offset;
  /*
   The offset of the attributes. 0 if there are none.
   */
  uint32_t xattr_offset;
  /*
   The bytes of the attributes.
   */
  uint32_t xattr_len;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version of the library, as "0.1.0". See nowait(3).
 */
const char *nw_version(void);

/*
 The system calls that the process may use: NW_CAN_PREADV2 and so on. They are tried at the first
 call. See nowait(3).
 */
unsigned int nw_capabilities(void);

/*
 The text of an error: of −errno or of errno, as strerror(3), but without a buffer that threads
 share. The text is a constant. See nowait(3).
 */
const char *nw_strerror(int error);

/*
 Makes an engine. `options` may be null. Returns 0 or −errno. See nw_engine(3).
 */
int nw_engine_create(const struct nw_engine_options *options,
                     struct nw_engine **engine);

/*
 Frees an engine. Returns 0, −EBUSY while operations are in flight or completions are not reaped,
 −EPERM for a local engine of another thread. See nw_engine(3).
 */
int nw_engine_destroy(struct nw_engine *engine);

/*
 Submits one operation. Returns NW_DONE, NW_QUEUED or NW_FULL, or −errno if the operation is
 invalid. Its memory belongs to the engine until its completion. See nw_submit(3).
 */
int nw_submit(const struct nw_engine *engine,
              const struct nw_op *op,
              struct nw_completion *completion);

/*
 Submits operations in their order, with one system call if possible, until the engine is full or
 an operation is invalid. Returns the number of operations that were taken, or −errno if the
 first one is invalid. nw_reap returns the completion of each, also of those that are done at
 once. See nw_submit(3).
 */
int nw_submit_batch(const struct nw_engine *engine,
                    const struct nw_op *ops,
                    unsigned int count);

/*
 Takes completions. Waits until `wait_for` of them are there, nothing is in flight, or the time
 is up. If `wait_for` is greater than 1, it also waits after that time for a first one. A null
 timeout is no limit. Returns their number, which may be 0, or −errno. See nw_reap(3).
 */
int nw_reap(const struct nw_engine *engine,
            struct nw_completion *completions,
            unsigned int count,
            unsigned int wait_for,
            const struct timespec *timeout);

/*
 An eventfd that is readable while there is something to reap, for poll(2) and epoll(7). It
 belongs to the engine: the program neither reads nor closes it. Returns −errno if there is none.
 See nw_reap(3).
 */
int nw_engine_event_fd(const struct nw_engine *engine);

/*
 Asks the engine to stop an operation. It has exactly one completion in any case, with −ECANCELED
 if it was stopped in time. Returns 0 or −errno. See nw_submit(3).
 */
int nw_cancel(const struct nw_engine *engine,
              uint64_t ticket);

/*
 The number of operations in flight, and of completions that are not reaped; or −errno. See
 nw_engine(3).
 */
ssize_t nw_engine_in_flight(const struct nw_engine *engine);

/*
 NW_BACKEND_URING or NW_BACKEND_THREADS, or −errno. See nw_engine(3).
 */
int nw_engine_backend(const struct nw_engine *engine);

/*
 The reason for the backend, until the engine is destroyed. Null if the handle is not an engine.
 See nw_engine(3).
 */
const char *nw_engine_why(const struct nw_engine *engine);

/*
 The counters of an engine. stats->size is set by the program to sizeof(struct nw_stats). Returns
 0 or −errno. See nw_engine(3).
 */
int nw_engine_stats(const struct nw_engine *engine,
                    struct nw_stats *stats);

/*
 Copies the reason why an optional feature of the ring is missing, such as "polled" or
 "registered files", into `buf`, with a NUL at the end. Returns 0 if the engine has the feature,
 1 if it is missing, or −errno: −ENOENT for an unknown name. If the engine has no ring,
 `nw_engine_why` has the reason. See nw_engine(3).
 */
int nw_engine_feature(const struct nw_engine *engine,
                      const char *name,
                      char *buf,
                      size_t len);

/*
 Opens the regular file at `path`, reads it from its beginning until `len` bytes are read or it ends, and closes it. If
 path and pages are cached, the calling thread does it, up to the engine's `copy_limit`. Otherwise one worker does all of it. Returns
 NW_DONE, NW_QUEUED or NW_FULL, or −errno if a pointer is null or `len` is too large. The result is the number of bytes: the
 file is whole if they are fewer than `len`. See nw_read_file(3).
 */
int nw_read_file(const struct nw_engine *engine,
                 const char *path,
                 void *buf,
                 size_t len,
                 uint64_t user_data,
                 struct nw_completion *completion);

/*
 Makes a file of an open descriptor, which stays the program's. It must stay open, and belong to
 the same file, until nw_file_close. Returns 0 or −errno. See nw_file(3).
 */
int nw_file_open(int fd,
                 struct nw_file **file);

/*
 As nw_file_open. Before a read of the file is tried, the kernel is asked if its range is cached, in
 nw_file_pread_cached and in every engine. Sets FADV_RANDOM. See nw_file(3).
 */
int nw_file_open_strict(int fd,
                        struct nw_file **file);

/*
 Frees a file. Its descriptor stays open. Returns 0, or −EBUSY while operations on it are in
 flight or a mapping of it exists. See nw_file(3).
 */
int nw_file_close(struct nw_file *file);

/*
 The descriptor of a file, or −errno. See nw_file(3).
 */
int nw_file_fd(const struct nw_file *file);

/*
 As nw_pread_cached, if the file's history is in favour of a try, and counts the result in the
 history. Returns NW_CACHED_SKIPPED if the read should not be tried: hand it over. See
 nw_file(3).
 */
int nw_file_pread_cached(const struct nw_file *file,
                         void *buf,
                         size_t len,
                         off_t offset,
                         size_t *n);

/*
 Maps a file. If its bytes cannot be borrowed, nw_mapping_why has the reason, and
 nw_mapping_pread works all the same. Returns 0 or −errno. See nw_mapping(3).
 */
int nw_mapping_open(const struct nw_file *file,
                    struct nw_mapping **mapping);

/*
 Frees a mapping. Everything that was borrowed must have been released. Returns 0 or −errno. See
 nw_mapping(3).
 */
int nw_mapping_close(struct nw_mapping *mapping);

/*
 Borrows bytes if they are resident, in some tens of nanoseconds. The thread that borrows them
 releases them. Returns 0, −EAGAIN if they are not resident, or −errno. See nw_mapping(3).
 */
int nw_mapping_get(const struct nw_mapping *mapping,
                   uint64_t offset,
                   size_t len,
                   struct nw_resident *resident);

/*
 As nw_mapping_get, and waits until the bytes are resident. Any thread may release them. Returns
 0, or −errno if they cannot be borrowed. See nw_mapping(3).
 */
int nw_mapping_load(const struct nw_mapping *mapping,
                    uint64_t offset,
                    size_t len,
                    struct nw_resident *resident);

/*
 Returns borrowed bytes. Does nothing after the first call. See nw_mapping(3).
 */
void nw_resident_release(struct nw_resident *resident);

/*
 Makes bytes resident in the background. Returns 0 or −errno. See nw_mapping(3).
 */
int nw_mapping_prefetch(const struct nw_mapping *mapping,
                        uint64_t offset,
                        size_t len);

/*
 Copies bytes: from memory if they are resident, otherwise by an ordinary read, which may wait.
 Returns the number of bytes, or −errno. See nw_mapping(3).
 */
ssize_t nw_mapping_pread(const struct nw_mapping *mapping,
                         void *buf,
                         size_t len,
                         uint64_t offset);

/*
 The length of the mapped file, or −errno. See nw_mapping(3).
 */
ssize_t nw_mapping_len(const struct nw_mapping *mapping);

/*
 The reason why no bytes can be borrowed, a constant; null if they can. See nw_mapping(3).
 */
const char *nw_mapping_why(const struct nw_mapping *mapping);

/*
 The number of bytes from offset on that are in the page cache without a gap, at most len. If
 page_map is not null, its bytes are set to 1 for each cached page that the range touches, and to
 0 for others; it has a byte for each page, as the vector of mincore(2). Returns −EOPNOTSUPP if
 the residency is unknown. See nw_fincore(3).
 */
ssize_t nw_fincore(int fd,
                   unsigned char *page_map,
                   off_t offset,
                   size_t len);

/*
 nw_fincore without a map: the number of bytes from offset on that are in the page cache without
 a gap. See nw_fincore(3).
 */
ssize_t nw_resident_prefix(int fd,
                           off_t offset,
                           size_t len);

/*
 Counts the pages of a range by their state: cached, dirty, being written, evicted. Returns 0,
 −EOPNOTSUPP if the residency is unknown, or another −errno. See nw_fincore(3).
 */
int nw_residency(int fd,
                 off_t offset,
                 size_t len,
                 struct nw_residency *residency);

/*
 preadv2(2), by system call. Every RWF_* flag is passed to the kernel, and none is dropped.
 Returns the number of bytes, or −errno, with errno set too. See nw_preadv2(3).
 */
ssize_t nw_preadv2(int fd,
                   const struct iovec *iov,
                   int iovcnt,
                   off_t offset,
                   int flags);

/*
 pwritev2(2), by system call. Every RWF_* flag is passed to the kernel, and none is dropped.
 Returns the number of bytes, or −errno, with errno set too. See nw_preadv2(3).
 */
ssize_t nw_pwritev2(int fd,
                    const struct iovec *iov,
                    int iovcnt,
                    off_t offset,
                    int flags);

/*
 Reads the bytes of a range that the page cache has. If RWF_NOWAIT is refused, it can wait for the
 device: the bytes may be evicted between the query of residency and the read. Returns NW_CACHED_ALL,
 NW_CACHED_PREFIX, NW_CACHED_NOTHING or NW_CACHED_UNSUPPORTED, or −errno. *n is the number of
 bytes that were read. See nw_pread_cached(3).
 */
int nw_pread_cached(int fd,
                    void *buf,
                    size_t len,
                    off_t offset,
                    size_t *n);

/*
 Begins a scan of a directory. `options` may be null: names alone. The scan opens the directory
 again, and leaves the position of `dirfd` as it is. Returns 0 or −errno. See nw_xgetdents(3).
 */
int nw_scan_open(int dirfd,
                 const struct nw_scan_options *options,
                 struct nw_scan **scan);

/*
 Ends a scan and frees it. Returns 0 or −errno. See nw_xgetdents(3).
 */
int nw_scan_close(struct nw_scan *scan);

/*
 Fills a buffer with records of entries (struct nw_dirent), as getdents64(2) does. Returns the
 number of bytes, 0 at the end of the directory, −EINVAL if the buffer is too small for the next
 entry, or another −errno. The next call continues. See nw_xgetdents(3).
 */
ssize_t nw_xgetdents(const struct nw_scan *scan,
                     void *buf,
                     size_t len);

/*
 Calls `each` with every entry, until it returns another value than 0. Returns that value, 0 at
 the end, or −errno. The entry is valid during the call. `each` must return: it must not end by
 longjmp(3) or an exception. See nw_xgetdents(3).
 */
int nw_scan_each(const struct nw_scan *scan,
                 int (*each)(const struct nw_dirent *entry,
                             void *data),
                 void *data);

/*
 Begins to load the inodes of at most `limit` entries into the kernel's caches, sorted and in the
 background, from the position *cookie on, which is 0 at the beginning. A limit of 0 is none.
 *cookie becomes the position after them. Returns the number of entries, 0 at the end of the
 directory, or −errno. See nw_dirreadahead(3).
 */
ssize_t nw_dirreadahead(int dirfd,
                        size_t limit,
                        uint64_t *cookie);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NOWAIT_H */

#ifndef NOWAIT_H_INLINE
#define NOWAIT_H_INLINE

/* The name of an entry, with a NUL at its end. */
static inline const char *nw_dirent_name(const struct nw_dirent *entry)
{
    return (const char *)entry + entry->name_offset;
}

/* The metadata of an entry. NULL if it was not asked for, or entry->stat_error says why it is missing. */
static inline const struct statx *nw_dirent_statx(const struct nw_dirent *entry)
{
    return entry->stat_offset
               ? (const struct statx *)(const void *)((const char *)entry + entry->stat_offset)
               : NULL;
}

/* The entry after this one in a buffer that nw_xgetdents has filled with `filled` bytes. NULL after the last one. */
static inline const struct nw_dirent *nw_dirent_next(const struct nw_dirent *entry, const void *buf,
                                                     size_t filled)
{
    const char *next = (const char *)entry + entry->reclen;
    return next < (const char *)buf + filled ? (const struct nw_dirent *)(const void *)next : NULL;
}

/* An extended attribute of an entry. */
struct nw_xattr {
    const char *name;
    const void *value; /* NULL if only names were asked for. */
    size_t value_len;
};

/* Reads the attribute at *at, which is 0 for the first one, and advances *at. Returns 1, or 0 after the last one. */
static inline int nw_dirent_xattr(const struct nw_dirent *entry, uint32_t *at, struct nw_xattr *xattr)
{
    const char *start;
    const uint32_t *lengths;
    uint32_t size;
    if (*at >= entry->xattr_len)
        return 0;
    start = (const char *)entry + entry->xattr_offset + *at;
    lengths = (const uint32_t *)(const void *)start;
    xattr->name = start + 8;
    xattr->value = lengths[1] == UINT32_MAX ? NULL : start + 8 + lengths[0] + 1;
    xattr->value_len = lengths[1] == UINT32_MAX ? 0 : lengths[1];
    size = 8 + lengths[0] + 1 + (uint32_t)xattr->value_len;
    *at += (size + 3) / 4 * 4;
    return 1;
}

#endif /* NOWAIT_H_INLINE */
