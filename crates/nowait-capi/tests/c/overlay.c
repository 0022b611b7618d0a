/* The residency of a file of overlayfs that is copied up while it is open. Its arguments are its paths in the overlay and
 * in the lower directory. The file has LEN bytes, all of them cached. */
#include "test.h"

enum { LEN = 1 << 20 };
static char bytes[LEN];

static void cached(int fd, ssize_t expected)
{
    static unsigned char map[LEN / 4096];
    struct nw_residency sum = {.size = sizeof sum};
    EQUAL(nw_resident_prefix(fd, 0, LEN), expected);
    EQUAL(nw_fincore(fd, NULL, 0, LEN), expected);
    EQUAL(nw_fincore(fd, map, 0, LEN), expected);
    for (long page = 0; page * sysconf(_SC_PAGESIZE) < LEN; page++)
        EQUAL(map[page], expected > 0);
    EQUAL(nw_residency(fd, 0, LEN, &sum), 0);
    EQUAL(sum.cached, (uint64_t)(expected / sysconf(_SC_PAGESIZE)));
}

int main(int argc, char **argv)
{
    EQUAL(argc, 3);
    int old = open(argv[1], O_RDONLY), lower = open(argv[2], O_RDONLY);
    CHECK(old >= 0 && lower >= 0);
    EQUAL(pread(old, bytes, LEN, 0), LEN);
    cached(old, LEN);

    /* The write copies the file up. */
    int writer = open(argv[1], O_WRONLY);
    EQUAL(pwrite(writer, bytes, 1, 0), 1);
    EQUAL(fsync(writer), 0);
    int new = open(argv[1], O_RDONLY);
    EQUAL(posix_fadvise(new, 0, 0, POSIX_FADV_DONTNEED), 0);
    EQUAL(pread(lower, bytes, LEN, 0), LEN);
    cached(old, 0);
    cached(new, 0);

    EQUAL(pread(old, bytes, LEN, 0), LEN);
    cached(old, LEN);
    cached(new, LEN);
    return 0;
}
