/* The calls without an engine. */
#include "test.h"

#include <dirent.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/xattr.h>

static void preadv2_is_the_system_call(void)
{
    int fd = make_file("file", 10000);
    char a[100], b[200];
    struct iovec iov[2] = {{a, sizeof a}, {b, sizeof b}};
    EQUAL(nw_preadv2(fd, iov, 2, 50, 0), 300);
    check_bytes(a, 50, 100);
    check_bytes(b, 150, 200);
    /* The descriptor's own position. */
    EQUAL(lseek(fd, 1000, SEEK_SET), 1000);
    EQUAL(nw_preadv2(fd, iov, 1, -1, 0), 100);
    check_bytes(a, 1000, 100);
    EQUAL(lseek(fd, 0, SEEK_CUR), 1100);
    EQUAL(nw_preadv2(fd, iov, 1, 0, RWF_HIPRI), 100);
    /* A flag that no kernel has, and errno like the kernel's. */
    errno = 0;
    EQUAL(nw_preadv2(fd, iov, 1, 0, 1 << 30), -EOPNOTSUPP);
    EQUAL(errno, EOPNOTSUPP);
    EQUAL(nw_preadv2(-1, iov, 1, 0, 0), -EBADF);
    if (!is_under_valgrind()) {
        EQUAL(nw_preadv2(fd, NULL, 1, 0, 0), -EFAULT);
        EQUAL(nw_preadv2(fd, iov, -1, 0, 0), -EINVAL);
        EQUAL(nw_preadv2(fd, iov, UIO_MAXIOV + 1, 0, 0), -EINVAL);
    }
    EQUAL(nw_preadv2(fd, iov, 1, -2, 0), -EINVAL);
    close(fd);
}

static void pwritev2_is_the_system_call(void)
{
    int fd = make_file("file", 100);
    char word[5] = "word", back[5];
    struct iovec iov = {word, 4};
    EQUAL(nw_pwritev2(fd, &iov, 1, 10, RWF_DSYNC), 4);
    EQUAL(pread(fd, back, 4, 10), 4);
    CHECK(memcmp(back, "word", 4) == 0);
    EQUAL(nw_pwritev2(fd, &iov, 1, 0, RWF_APPEND), 4);
    EQUAL(lseek(fd, 0, SEEK_END), 104);
    int reader = open("file", O_RDONLY);
    EQUAL(nw_pwritev2(reader, &iov, 1, 0, 0), -EBADF);
    close(reader);
    close(fd);
}

static void pread_cached_says_what_the_page_cache_had(void)
{
    int fd = make_file("file", 100000);
    char buf[100000];
    size_t n = 77;
    EQUAL(nw_pread_cached(fd, buf, 5000, 100, &n), NW_CACHED_ALL);
    EQUAL(n, 5000);
    check_bytes(buf, 100, 5000);
    /* Up to the end of the file, and beyond it. */
    EQUAL(nw_pread_cached(fd, buf, sizeof buf, 99000, &n), NW_CACHED_ALL);
    EQUAL(n, 1000);
    EQUAL(nw_pread_cached(fd, buf, 10, 100000, &n), NW_CACHED_ALL);
    EQUAL(n, 0);
    EQUAL(nw_pread_cached(fd, buf, 0, 0, &n), NW_CACHED_ALL);
    EQUAL(nw_pread_cached(fd, NULL, 0, 0, &n), NW_CACHED_ALL);
    if (!getenv("NOWAIT_VALGRIND")) /* which reports it, too */
        EQUAL(nw_pread_cached(fd, (void *)0x10000, 1, 0, &n), -EFAULT); /* not mapped */
    evict(fd);
    /* Not cached. A fast device may be done within the call. */
    int said = nw_pread_cached(fd, buf, 5000, 100, &n);
    CHECK(said == NW_CACHED_NOTHING || said == NW_CACHED_ALL || said == NW_CACHED_PREFIX);
    CHECK(said != NW_CACHED_NOTHING || n == 0);
    check_bytes(buf, 100, n);
    EQUAL(nw_pread_cached(-1, buf, 1, 0, &n), -EBADF);
    EQUAL(nw_pread_cached(12345, buf, 1, 0, &n), -EBADF);
    EQUAL(nw_pread_cached(fd, NULL, 1, 0, &n), -EFAULT);
    EQUAL(nw_pread_cached(fd, buf, 1, 0, NULL), -EFAULT);
    EQUAL(nw_pread_cached(fd, buf, 1, -1, &n), -EINVAL);
    EQUAL(nw_pread_cached(fd, buf, SIZE_MAX, 0, &n), -EINVAL);
    /* A pipe has no offsets. */
    int ends[2];
    EQUAL(pipe(ends), 0);
    said = nw_pread_cached(ends[0], buf, 1, 0, &n);
    CHECK(said == NW_CACHED_NOTHING || said < 0);
    close(ends[0]);
    close(ends[1]);
    close(fd);
}

static void a_file_stops_trying_what_is_never_cached(void)
{
    int fd = make_file("file", 4 << 20);
    struct nw_file *file;
    char buf[4096];
    size_t n;
    EQUAL(nw_file_open(fd, &file), 0);
    EQUAL(nw_file_fd(file), fd);
    for (int i = 0; i < 100; i++) {
        int said = nw_file_pread_cached(file, buf, sizeof buf, 4096 * i, &n);
        /* Another program may drop the page cache (drop_caches). */
        for (int again = 0; said == NW_CACHED_NOTHING && again < 10; again++) {
            EQUAL(pread(fd, buf, sizeof buf, 4096 * i), sizeof buf);
            said = nw_file_pread_cached(file, buf, sizeof buf, 4096 * i, &n);
        }
        EQUAL(said, NW_CACHED_ALL);
        EQUAL(n, sizeof buf);
        check_bytes(buf, 4096 * i, n);
    }
    /* tmpfs refuses RWF_NOWAIT, and its files are in memory. */
    int shm = memfd_create("file", 0);
    CHECK(shm >= 0);
    EQUAL(write(shm, "bytes", 5), 5);
    EQUAL(nw_pread_cached(shm, buf, sizeof buf, 1, &n), NW_CACHED_ALL);
    CHECK(n == 4 && memcmp(buf, "ytes", 4) == 0);
    close(shm);
    /* The files of procfs are not in the page cache. */
    int status = open("/proc/self/status", O_RDONLY);
    struct nw_file *never;
    EQUAL(nw_file_open(status, &never), 0);
    for (int i = 0; i < 10; i++) {
        int said = nw_file_pread_cached(never, buf, sizeof buf, 0, &n);
        /* Under valgrind a try takes so long that it seems to have waited for a device. */
        CHECK(said == NW_CACHED_UNSUPPORTED || said == NW_CACHED_SKIPPED);
        EQUAL(n, 0);
    }
    EQUAL(nw_file_close(never), 0);
    close(status);
    /* Each page is tried once. */
    int cold = make_file("cold", 4 << 20), skipped = 0, missed = 0;
    evict(cold);
    EQUAL(posix_fadvise(cold, 0, 0, POSIX_FADV_RANDOM), 0);
    EQUAL(nw_file_open(cold, &never), 0);
    for (int i = 0; i < 1000; i++) {
        int said = nw_file_pread_cached(never, buf, sizeof buf, i * 777 % 1024 * 4096, &n);
        skipped += said == NW_CACHED_SKIPPED;
        missed += said == NW_CACHED_NOTHING;
    }
    EQUAL(nw_file_close(never), 0);
    close(cold);
    CHECK(skipped > 500 || missed < 300);
    EQUAL(nw_file_close(file), 0);
    /* The descriptor stays open, and the closed handle is found. */
    EQUAL(pread(fd, buf, 10, 0), 10);
    EQUAL(nw_file_fd(file), -EBADF);
    EQUAL(nw_file_close(file), -EBADF);
    EQUAL(nw_file_pread_cached(file, buf, 1, 0, &n), -EBADF);
    EQUAL(nw_file_open(-1, &file), -EBADF);
    EQUAL(nw_file_open(12345, &file), -EBADF);
    EQUAL(nw_file_open(fd, NULL), -EFAULT);
    EQUAL(nw_file_close(NULL), -EFAULT);
    close(fd);
}

static void rules_of_a_read_apply_to_cached_reads(void)
{
    enum { LARGE = (256 << 10) + 1 };
    int fd = make_file("file", 4 << 20);
    struct nw_file *file;
    static char buf[LARGE];
    size_t n;
    EQUAL(nw_file_open(fd, &file), 0);
    /* A thread of a pool copies more than 256 KiB. */
    EQUAL(nw_file_pread_cached(file, buf, LARGE, 0, &n), NW_CACHED_SKIPPED);
    EQUAL(n, 0);
    EQUAL(nw_file_close(file), 0);
    /* A strict file. */
    EQUAL(nw_file_open_strict(fd, &file), 0);
    evict(fd);
    int said = nw_file_pread_cached(file, buf, 4096, 1 << 20, &n);
    CHECK(said == NW_CACHED_NOTHING || said == NW_CACHED_ALL);
    for (int i = 0; i < 10 && said != NW_CACHED_ALL; i++) {
        EQUAL(pread(fd, buf, 4096, 1 << 20), 4096);
        said = nw_file_pread_cached(file, buf, 4096, 1 << 20, &n);
    }
    EQUAL(said, NW_CACHED_ALL);
    check_bytes(buf, 1 << 20, 4096);
    EQUAL(nw_file_close(file), 0);
    EQUAL(nw_file_open_strict(-1, &file), -EBADF);
    EQUAL(nw_file_open_strict(fd, NULL), -EFAULT);
    close(fd);
    /* A read with O_DIRECT waits for the device. */
    int direct = open("file", O_RDONLY | O_DIRECT);
    if (direct >= 0) {
        EQUAL(nw_file_open(direct, &file), 0);
        EQUAL(nw_file_pread_cached(file, buf, 4096, 0, &n), NW_CACHED_SKIPPED);
        EQUAL(nw_file_close(file), 0);
        close(direct);
    }
}

enum { READERS = 6, READS = 3000, SHARED_SIZE = 4 << 20 };

static struct nw_file *shared_file;

/* Reads random ranges through the shared file. What is not cached is read with pread. */
static void *read_at_random(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    static _Thread_local char buf[20000];
    for (int i = 0; i < READS; i++) {
        size_t len = 1 + rand_r(&seed) % sizeof buf, n = sizeof buf + 1;
        off_t offset = rand_r(&seed) % SHARED_SIZE;
        size_t expected = len < (size_t)(SHARED_SIZE - offset) ? len : (size_t)(SHARED_SIZE - offset);
        memset(buf, 0, len);
        int said = nw_file_pread_cached(shared_file, buf, len, offset, &n);
        switch (said) {
        case NW_CACHED_ALL:
            EQUAL(n, expected);
            break;
        case NW_CACHED_PREFIX:
            CHECK(n > 0 && n < expected);
            break;
        default:
            CHECK(said == NW_CACHED_NOTHING || said == NW_CACHED_SKIPPED);
            EQUAL(n, 0);
        }
        EQUAL(pread(nw_file_fd(shared_file), buf + n, expected - n, offset + n), expected - n);
        check_bytes(buf, offset, expected);
    }
    return NULL;
}

static void threads_read_one_file(void)
{
    int fd = make_file("file", SHARED_SIZE);
    pthread_t threads[READERS];
    EQUAL(nw_file_open(fd, &shared_file), 0);
    for (uintptr_t i = 0; i < READERS; i++)
        EQUAL(pthread_create(&threads[i], NULL, read_at_random, (void *)i), 0);
    for (int i = 0; i < 50; i++) {
        EQUAL(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        usleep(2000);
    }
    for (int i = 0; i < READERS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    EQUAL(nw_file_close(shared_file), 0);
    close(fd);
}

static void fincore_counts_and_maps(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = make_file("file", 20 * page + 100);
    unsigned char map[30];
    EQUAL(nw_fincore(fd, NULL, 0, 21 * page), 20 * page + 100);
    EQUAL(nw_fincore(fd, NULL, 10, 50), 50);
    EQUAL(nw_resident_prefix(fd, 10, 50), 50);
    memset(map, 9, sizeof map);
    EQUAL(nw_fincore(fd, map, 0, 25 * page), 20 * page + 100);
    for (int i = 0; i < 30; i++)
        EQUAL(map[i], i < 21 ? 1 : i < 25 ? 0 : 9);
    /* From the middle of a page on, over three pages. */
    memset(map, 9, sizeof map);
    EQUAL(nw_fincore(fd, map, page + 10, 2 * page), 2 * page);
    for (int i = 0; i < 4; i++)
        EQUAL(map[i], i < 3 ? 1 : 9);
    struct nw_residency sum = {.size = sizeof sum};
    /* After the end of the file, in its last page and after that. */
    memset(map, 9, sizeof map);
    EQUAL(nw_fincore(fd, map, 20 * page + 100, 10), 0);
    EQUAL(map[0], 1);
    EQUAL(nw_fincore(fd, map, 21 * page - 1, 2), 0);
    EQUAL(map[0], 1);
    EQUAL(map[1], 0);
    EQUAL(nw_fincore(fd, map, 21 * page, 2), 0);
    EQUAL(map[0], 0);
    EQUAL(map[2], 9);
    EQUAL(nw_residency(fd, 20 * page + 500, 10 * page, &sum), 0);
    EQUAL(sum.pages, 1);
    EQUAL(sum.cached, 1);
    EQUAL(nw_residency(fd, 21 * page, page, &sum), 0);
    EQUAL(sum.pages, 0);
    EQUAL(sum.cached, 0);
    EQUAL(nw_residency(fd, 0, 21 * page, &sum), 0);
    EQUAL(sum.size, sizeof sum);
    EQUAL(sum.pages, 21);
    EQUAL(sum.cached, 21);
    CHECK(sum.source == NW_SOURCE_CACHESTAT || sum.source == NW_SOURCE_MINCORE);
    if (sum.has_states)
        EQUAL(sum.dirty, 0);
    evict(fd);
    if (!is_under_valgrind()) {
        EQUAL(nw_fincore(fd, map, 0, 25 * page), 0);
        for (int i = 0; i < 25; i++)
            EQUAL(map[i], 0);
    }
    EQUAL(nw_fincore(fd, NULL, -1, 10), -EINVAL);
    EQUAL(nw_fincore(fd, NULL, 0, 0), -EINVAL);
    EQUAL(nw_fincore(fd, NULL, 0, SIZE_MAX), -EINVAL);
    EQUAL(nw_fincore(-1, NULL, 0, 10), -EBADF);
    EQUAL(nw_residency(fd, 0, 10, NULL), -EFAULT);
    /* An older program has a smaller struct, a newer one a larger. */
    struct {
        size_t size;
        uint64_t pages, more;
    } small = {2 * sizeof(size_t), 5, 6};
    EQUAL(nw_residency(fd, 0, page, (struct nw_residency *)&small), 0);
    EQUAL(small.pages, 1);
    EQUAL(small.more, 6);
    struct {
        struct nw_residency known;
        uint64_t later;
    } large = {{.size = sizeof large}, 7};
    EQUAL(nw_residency(fd, 0, page, &large.known), 0);
    EQUAL(large.later, 0);
    small.size = 1;
    EQUAL(nw_residency(fd, 0, page, (struct nw_residency *)&small), -EINVAL);
    close(fd);
}

static int make_directory(int files)
{
    EQUAL(mkdir("dir", 0700), 0);
    int dir = open("dir", O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0);
    for (int i = 0; i < files; i++) {
        char name[40];
        snprintf(name, sizeof name, "file-%d", i);
        int fd = openat(dir, name, O_WRONLY | O_CREAT, 0600);
        CHECK(fd >= 0);
        EQUAL(ftruncate(fd, i), 0);
        close(fd);
    }
    return dir;
}

static void remove_directory(int dir, int files)
{
    for (int i = 0; i < files; i++) {
        char name[40];
        snprintf(name, sizeof name, "file-%d", i);
        EQUAL(unlinkat(dir, name, 0), 0);
    }
    close(dir);
    EQUAL(rmdir("dir"), 0);
}

enum { FILES = 3000 };
static unsigned char seen[FILES];

static void check_entry(const struct nw_dirent *entry)
{
    int number = atoi(nw_dirent_name(entry) + 5);
    CHECK(strncmp(nw_dirent_name(entry), "file-", 5) == 0 && number >= 0 && number < FILES);
    EQUAL(strlen(nw_dirent_name(entry)), entry->name_len);
    EQUAL(entry->d_type, DT_REG);
    EQUAL(seen[number]++, 0);
    const struct statx *stat = nw_dirent_statx(entry);
    CHECK(stat != NULL);
    EQUAL(stat->stx_size, number);
    EQUAL(stat->stx_ino, entry->ino);
}

static void xgetdents_returns_each_entry_once(void)
{
    int dir = make_directory(FILES);
    struct nw_scan_options options = {.size = sizeof options, .mask = STATX_BASIC_STATS};
    /* One entry at a time, a few, and many. */
    for (size_t room = 512; room <= 1 << 20; room *= 16) {
        struct nw_scan *scan;
        char *buf = malloc(room);
        ssize_t n;
        memset(seen, 0, sizeof seen);
        EQUAL(nw_scan_open(dir, &options, &scan), 0);
        while ((n = nw_xgetdents(scan, buf, room)) > 0) {
            const struct nw_dirent *entry = (const struct nw_dirent *)buf;
            for (; entry != NULL; entry = nw_dirent_next(entry, buf, (size_t)n))
                check_entry(entry);
        }
        EQUAL(n, 0);
        EQUAL(nw_xgetdents(scan, buf, room), 0);
        for (int i = 0; i < FILES; i++)
            EQUAL(seen[i], 1);
        EQUAL(nw_scan_close(scan), 0);
        EQUAL(nw_xgetdents(scan, buf, room), -EBADF);
        free(buf);
    }
    /* The program's descriptor was not moved. */
    EQUAL(lseek(dir, 0, SEEK_CUR), 0);
    remove_directory(dir, FILES);
}

static void a_buffer_that_is_too_small_loses_no_entry(void)
{
    int dir = make_directory(3);
    struct nw_scan *scan;
    _Alignas(8) char buf[4096];
    int entries = 0;
    ssize_t n;
    EQUAL(nw_scan_open(dir, NULL, &scan), 0);
    EQUAL(nw_xgetdents(scan, buf, 8), -EINVAL);
    EQUAL(nw_xgetdents(scan, buf, 0), -EINVAL);
    EQUAL(nw_xgetdents(scan, NULL, 8), -EFAULT);
    EQUAL(nw_xgetdents(scan, buf + 1, 400), -EINVAL);
    while ((n = nw_xgetdents(scan, buf, 56)) > 0) {
        const struct nw_dirent *entry = (const struct nw_dirent *)buf;
        EQUAL(entry->stat_offset, 0);
        CHECK(nw_dirent_statx(entry) == NULL);
        CHECK(nw_dirent_next(entry, buf, (size_t)n) == NULL);
        entries++;
    }
    EQUAL(n, 0);
    EQUAL(entries, 3);
    EQUAL(nw_scan_close(scan), 0);
    remove_directory(dir, 3);
}

static void *reentered;

static int count_entries(const struct nw_dirent *entry, void *data)
{
    _Alignas(8) char buf[64];
    check_entry(entry);
    /* The same scan cannot be used meanwhile. Another one can. */
    EQUAL(nw_xgetdents(reentered, buf, sizeof buf), -EBUSY);
    EQUAL(nw_scan_close(reentered), -EBUSY);
    return ++*(int *)data == 10 ? 42 : 0;
}

static void each_calls_back_until_it_is_told_to_stop(void)
{
    int dir = make_directory(FILES), calls = 0;
    struct nw_scan_options options = {.size = sizeof options, .mask = STATX_BASIC_STATS};
    struct nw_scan *scan;
    memset(seen, 0, sizeof seen);
    EQUAL(nw_scan_open(dir, &options, &scan), 0);
    reentered = scan;
    EQUAL(nw_scan_each(scan, count_entries, &calls), 42);
    EQUAL(calls, 10);
    /* It goes on after the tenth entry. */
    EQUAL(nw_scan_each(scan, count_entries, &calls), 0);
    EQUAL(calls, FILES);
    EQUAL(nw_scan_each(scan, NULL, NULL), -EFAULT);
    EQUAL(nw_scan_close(scan), 0);
    remove_directory(dir, FILES);
}

static void attributes_are_read_by_choice(void)
{
    int dir = make_directory(1);
    const char *names[] = {"user.b", NULL};
    struct nw_scan_options options = {.size = sizeof options, .flags = NW_SCAN_XATTR_VALUES};
    _Alignas(8) char buf[4096];
    struct nw_xattr xattr;
    struct nw_scan *scan;
    if (setxattr("dir/file-0", "user.a", "one", 3, 0) != 0) {
        EQUAL(errno, EOPNOTSUPP);
        remove_directory(dir, 1);
        return;
    }
    EQUAL(setxattr("dir/file-0", "user.b", "", 0, 0), 0);
    EQUAL(setxattr("dir/file-0", "user.c", "three", 5, 0), 0);
    const struct nw_dirent *entry = (const struct nw_dirent *)buf;
    for (int chosen = 0; chosen < 3; chosen++) {
        uint32_t at = 0;
        int found = 0;
        options.xattr_names = chosen == 1 ? names : NULL;
        options.flags = chosen == 2 ? NW_SCAN_XATTR_NAMES : NW_SCAN_XATTR_VALUES;
        EQUAL(nw_scan_open(dir, &options, &scan), 0);
        CHECK(nw_xgetdents(scan, buf, sizeof buf) > 0);
        EQUAL(entry->xattr_error, 0);
        while (nw_dirent_xattr(entry, &at, &xattr)) {
            if (strncmp(xattr.name, "user.", 5) != 0)
                continue; /* security.selinux and the like */
            found++;
            if (chosen == 2) {
                CHECK(xattr.value == NULL);
                continue;
            }
            size_t len = xattr.name[5] == 'a' ? 3 : xattr.name[5] == 'b' ? 0 : 5;
            EQUAL(xattr.value_len, len);
            CHECK(memcmp(xattr.value, xattr.name[5] == 'a' ? "one" : "three", len) == 0);
        }
        EQUAL(found, chosen == 1 ? 1 : 3);
        EQUAL(nw_scan_close(scan), 0);
    }
    remove_directory(dir, 1);
}

static void scans_refuse_bad_arguments(void)
{
    int dir = make_directory(1), file = make_file("file", 1);
    struct nw_scan *scan;
    struct nw_scan_options options = {.size = sizeof options, .flags = 1u << 31};
    EQUAL(nw_scan_open(dir, &options, &scan), -EINVAL);
    options.flags = NW_SCAN_SORT_NAME | NW_SCAN_SORT_INODE;
    EQUAL(nw_scan_open(dir, &options, &scan), -EINVAL);
    options.size = 3;
    EQUAL(nw_scan_open(dir, &options, &scan), -EINVAL);
    struct {
        struct nw_scan_options known;
        uint64_t later;
    } large = {{.size = sizeof large}, 0};
    EQUAL(nw_scan_open(dir, &large.known, &scan), 0);
    EQUAL(nw_scan_close(scan), 0);
    large.later = 1;
    EQUAL(nw_scan_open(dir, &large.known, &scan), -E2BIG);
    EQUAL(nw_scan_open(file, NULL, &scan), -ENOTDIR);
    EQUAL(nw_scan_open(-1, NULL, &scan), -EBADF);
    EQUAL(nw_scan_open(dir, NULL, NULL), -EFAULT);
    close(file);
    remove_directory(dir, 1);
}

static void dirreadahead_goes_through_the_directory(void)
{
    int dir = make_directory(FILES);
    uint64_t cookie = 0;
    ssize_t n, all = 0;
    while ((n = nw_dirreadahead(dir, 700, &cookie)) > 0) {
        CHECK(n <= 700);
        all += n;
    }
    EQUAL(n, 0);
    EQUAL(all, FILES);
    cookie = 0;
    EQUAL(nw_dirreadahead(dir, 0, &cookie), FILES);
    EQUAL(nw_dirreadahead(dir, 1, NULL), -EFAULT);
    EQUAL(nw_dirreadahead(-1, 1, &cookie), -EBADF);
    EQUAL(lseek(dir, 0, SEEK_CUR), 0);
    remove_directory(dir, FILES);
}

static void limit_to(int resource, rlim_t to)
{
    struct rlimit limit;
    EQUAL(getrlimit(resource, &limit), 0);
    limit.rlim_cur = to;
    EQUAL(setrlimit(resource, &limit), 0);
}

static int counts(const struct nw_dirent *entry, void *data)
{
    EQUAL(entry->stat_error, 0);
    ++*(int *)data;
    return 0;
}

static int open_and_close_scan(int dir)
{
    struct nw_scan *scan;
    int result = nw_scan_open(dir, NULL, &scan);
    if (result == 0)
        EQUAL(nw_scan_close(scan), 0);
    return result;
}

static int readahead_of(int dir)
{
    uint64_t cookie = 0;
    return nw_dirreadahead(dir, 0, &cookie);
}

/* Makes a call while no descriptor is left. A worker of an earlier call may still close one. */
static int without_descriptors(int dir, int copies[16], int *count, int call(int dir))
{
    int result;
    for (int i = 0; i < 1000; i++) {
        while (*count < 16 && (copies[*count] = dup(dir)) >= 0)
            ++*count;
        result = call(dir);
        if (result == -EMFILE)
            break;
    }
    return result;
}

/* Scans with many workers and parts need few descriptors. */
static void few_descriptors_are_enough(void)
{
    int dir = make_directory(FILES);
    limit_to(RLIMIT_NOFILE, 16);
    for (uint32_t flags = 0; flags <= NW_SCAN_SORT_NAME; flags += NW_SCAN_SORT_NAME) {
        struct nw_scan_options options = {.size = sizeof options, .flags = flags, .mask = STATX_BASIC_STATS,
                                          .workers = 40};
        struct nw_scan *scan;
        int seen = 0;
        EQUAL(nw_scan_open(dir, &options, &scan), 0);
        EQUAL(nw_scan_each(scan, counts, &seen), 0);
        EQUAL(seen, FILES);
        EQUAL(nw_scan_close(scan), 0);
    }
    uint64_t cookie = 0;
    EQUAL(nw_dirreadahead(dir, 0, &cookie), FILES);
    /* With none left, each call that needs one says so. */
    struct nw_engine *engine;
    int copies[16], count = 0;
    EQUAL(without_descriptors(dir, copies, &count, open_and_close_scan), -EMFILE);
    EQUAL(without_descriptors(dir, copies, &count, readahead_of), -EMFILE);
    int made = nw_engine_create(NULL, &engine);
    CHECK(made == 0 || made == -EMFILE);
    if (made == 0)
        EQUAL(nw_engine_destroy(engine), 0);
    while (count > 0)
        close(copies[--count]);
    remove_directory(dir, FILES);
}

/* Engines that need more address space than there is are an error. */
static void little_address_space_is_an_error(void)
{
#ifndef __SANITIZE_ADDRESS__
    char line[200];
    unsigned long used = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "VmSize: %lu kB", &used);
    fclose(status);
    if (is_under_valgrind())
        return;
    limit_to(RLIMIT_AS, (used << 10) + (64 << 20));
    for (uint32_t flags = 0; flags <= NW_ENGINE_LOCAL; flags++)
        for (uint32_t depth = 64; depth <= 32768; depth *= 512) {
            struct nw_engine_options options = {.size = sizeof options, .flags = flags, .depth = depth};
            struct nw_engine *engine;
            int said = nw_engine_create(&options, &engine);
            CHECK(said == 0 || said == -ENOMEM || said == -EAGAIN);
            if (said == 0)
                EQUAL(nw_engine_destroy(engine), 0);
        }
    int fd = make_file("file", 100);
    EQUAL(ftruncate(fd, 1 << 30), 0);
    struct nw_file *file;
    struct nw_mapping *mapping;
    EQUAL(nw_file_open(fd, &file), 0);
    int said = nw_mapping_open(file, &mapping);
    CHECK(said == 0 || said == -ENOMEM);
    if (said == 0)
        EQUAL(nw_mapping_close(mapping), 0);
    EQUAL(nw_file_close(file), 0);
    close(fd);
#endif
}

static void the_library_tells_about_itself(void)
{
    CHECK(strchr(nw_version(), '.') != NULL);
    CHECK(nw_capabilities() & NW_CAN_PREADV2);
    CHECK(strcmp(nw_strerror(-ENOENT), "No such file or directory") == 0);
    CHECK(strcmp(nw_strerror(ENOENT), "No such file or directory") == 0);
    CHECK(nw_strerror(-12345) != NULL && nw_strerror(-2147483647 - 1) != NULL);
}

static void calls_that_a_sandbox_denies(void)
{
    if (is_under_valgrind())
        return;
    int fd = make_file("file", 10000);
    char buf[100];
    struct iovec iov = {buf, sizeof buf};
    size_t n;
    deny(SYS_preadv2, ENOSYS);
    deny(SYS_pwritev2, ENOSYS);
    deny(SYS_io_uring_setup, ENOSYS);
    deny(SYS_mincore, ENOSYS);
    deny(451, ENOSYS); /* cachestat */
    EQUAL(nw_capabilities(), 0);
    EQUAL(nw_preadv2(fd, &iov, 1, 0, 0), -ENOSYS);
    EQUAL(nw_pwritev2(fd, &iov, 1, 0, 0), -ENOSYS);
    EQUAL(nw_pread_cached(fd, buf, sizeof buf, 0, &n), NW_CACHED_UNSUPPORTED);
    EQUAL(nw_fincore(fd, NULL, 0, 100), -EOPNOTSUPP);
    struct nw_residency sum = {.size = sizeof sum};
    EQUAL(nw_residency(fd, 0, 100, &sum), -EOPNOTSUPP);
    /* An engine of threads reads all the same. A ring that is asked for is refused. */
    struct nw_engine *engine;
    struct nw_engine_options options = {.size = sizeof options, .backend = NW_BACKEND_URING};
    if (getenv("NOWAIT_BACKEND") == NULL || strcmp(getenv("NOWAIT_BACKEND"), "threads") != 0) {
        EQUAL(nw_engine_create(&options, &engine), -ENOSYS);
        unsetenv("NOWAIT_BACKEND");
    }
    EQUAL(nw_engine_create(NULL, &engine), 0);
    EQUAL(nw_engine_backend(engine), NW_BACKEND_THREADS);
    struct nw_file *file;
    struct nw_completion done;
    EQUAL(nw_file_open(fd, &file), 0);
    struct nw_op op = {.opcode = NW_OP_READ, .file = file, .addr = buf, .len = sizeof buf, .offset = 7};
    EQUAL(nw_submit(engine, &op, &done), NW_QUEUED);
    EQUAL(nw_reap(engine, &done, 1, 1, NULL), 1);
    EQUAL(done.result, sizeof buf);
    check_bytes(buf, 7, sizeof buf);
    EQUAL(nw_file_close(file), 0);
    EQUAL(nw_engine_destroy(engine), 0);
    /* Directories are listed. */
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    struct nw_scan *scan;
    _Alignas(8) char entries[4096];
    EQUAL(nw_scan_open(dir, NULL, &scan), 0);
    CHECK(nw_xgetdents(scan, entries, sizeof entries) > 0);
    EQUAL(nw_scan_close(scan), 0);
    close(dir);
    close(fd);
}

#define CASE(name) {#name, name}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(preadv2_is_the_system_call),
        CASE(pwritev2_is_the_system_call),
        CASE(pread_cached_says_what_the_page_cache_had),
        CASE(a_file_stops_trying_what_is_never_cached),
        CASE(rules_of_a_read_apply_to_cached_reads),
        CASE(threads_read_one_file),
        CASE(fincore_counts_and_maps),
        CASE(xgetdents_returns_each_entry_once),
        CASE(a_buffer_that_is_too_small_loses_no_entry),
        CASE(each_calls_back_until_it_is_told_to_stop),
        CASE(attributes_are_read_by_choice),
        CASE(scans_refuse_bad_arguments),
        CASE(dirreadahead_goes_through_the_directory),
        CASE(few_descriptors_are_enough),
        CASE(little_address_space_is_an_error),
        CASE(the_library_tells_about_itself),
        CASE(calls_that_a_sandbox_denies),
    };
    return run_case(cases, sizeof cases / sizeof *cases, argc, argv);
}
