// Reads or writes a part in the middle of a large file in the way that the second argument names. Without arguments, prints
// the names. The way `open` opens the file only.
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// The first page of each window is resident, and this one is not.
#define AT (65L << 20)
#define LEN 4096L

ssize_t __read_chk(int, void *, size_t, size_t);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *);
size_t __fread_unlocked_chk(void *, size_t, size_t, size_t, FILE *);
char *__fgets_chk(char *, size_t, int, FILE *);
ssize_t __getdelim(char **, size_t *, int, FILE *);

static const char *path;
static int fd;
static FILE *stream;
static char buffer[LEN + 1];
static struct iovec vector = {buffer, LEN};
static off_t offset = AT;
static char *line;
static size_t room;

static int to(void) { return open("/dev/null", O_WRONLY); }
static int to_pipe(void) {
    int ends[2];
    return pipe(ends) == 0 ? ends[1] : -1;
}
static int to_file(void) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s-copy", path);
    return open(copy, O_RDWR | O_CREAT | O_TRUNC, 0600);
}
static long here(void) { return lseek(fd, AT, SEEK_SET); }
static FILE *there(void) {
    stream = fdopen(fd, "r+");
    return stream && fseek(stream, AT, SEEK_SET) == 0 ? stream : NULL;
}
static long maps(int flags) {
    volatile char *bytes = mmap(NULL, LEN, PROT_READ, MAP_SHARED | flags, fd, AT);
    return bytes != MAP_FAILED && bytes[0] == 0;
}
static long duplicates(void) {
    int other = dup(fd);
    return close(fd) == 0 && lseek(other, AT, SEEK_SET) == AT && read(other, buffer, LEN) == LEN;
}
static long forks(void) { return fork() == 0 ? here() && read(fd, buffer, LEN) == LEN : (sleep(1), 1); }

// The name, and the call. It returns whether it was successful.
#define WAYS(each)                                                                            \
    each(open, 1)                                                                             \
    each(read, here() && read(fd, buffer, LEN) == LEN)                                        \
    each(__read_chk, here() && __read_chk(fd, buffer, LEN, LEN) == LEN)                       \
    each(readv, here() && readv(fd, &vector, 1) == LEN)                                       \
    each(write, here() && write(fd, buffer, LEN) == LEN)                                      \
    each(writev, here() && writev(fd, &vector, 1) == LEN)                                     \
    each(pread, pread(fd, buffer, LEN, AT) == LEN)                                            \
    each(pread64, pread64(fd, buffer, LEN, AT) == LEN)                                        \
    each(preadv, preadv(fd, &vector, 1, AT) == LEN)                                           \
    each(preadv2, preadv2(fd, &vector, 1, AT, 0) == LEN)                                      \
    each(preadv2_here, here() && preadv2(fd, &vector, 1, -1, 0) == LEN)                       \
    each(pwrite, pwrite(fd, buffer, LEN, AT) == LEN)                                          \
    each(pwrite64, pwrite64(fd, buffer, LEN, AT) == LEN)                                      \
    each(pwritev, pwritev(fd, &vector, 1, AT) == LEN)                                         \
    each(pwritev64, pwritev64(fd, &vector, 1, AT) == LEN)                                     \
    each(pwritev2, pwritev2(fd, &vector, 1, AT, 0) == LEN)                                    \
    each(pwritev64v2, pwritev64v2(fd, &vector, 1, AT, 0) == LEN)                              \
    each(readahead, readahead(fd, AT, LEN) == 0)                                              \
    each(posix_fadvise, posix_fadvise(fd, AT, LEN, POSIX_FADV_WILLNEED) == 0)                 \
    each(sendfile, sendfile(to(), fd, &offset, LEN) == LEN)                                   \
    each(sendfile_here, here() && sendfile(to(), fd, NULL, LEN) == LEN)                       \
    each(splice, splice(fd, &offset, to_pipe(), NULL, LEN, 0) == LEN)                         \
    each(copy_file_range, copy_file_range(fd, &offset, to_file(), NULL, LEN, 0) == LEN)       \
    each(mmap, maps(0))                                                                       \
    each(mmap_populated, maps(MAP_POPULATE))                                                  \
    each(fdopen, getc(there()) == 0)                                                          \
    each(fread, fread(buffer, 1, LEN, there()) == LEN)                                        \
    each(fread_unlocked, fread_unlocked(buffer, 1, LEN, there()) == LEN)                      \
    each(__fread_chk, __fread_chk(buffer, LEN, 1, LEN, there()) == LEN)                       \
    each(__fread_unlocked_chk, __fread_unlocked_chk(buffer, LEN, 1, LEN, there()) == LEN)     \
    each(fgets, fgets(buffer, LEN, there()) != NULL)                                          \
    each(fgets_unlocked, fgets_unlocked(buffer, LEN, there()) != NULL)                        \
    each(__fgets_chk, __fgets_chk(buffer, LEN, LEN, there()) != NULL)                         \
    each(getline, getline(&line, &room, there()) > 0)                                         \
    each(getdelim, getdelim(&line, &room, 1, there()) > 0)                                    \
    each(__getdelim, __getdelim(&line, &room, 1, there()) > 0)                                \
    each(dup, duplicates())                                                                   \
    each(fork, forks())                                                                       \
    each(SYS_read, here() && syscall(SYS_read, fd, buffer, LEN) == LEN)                       \
    each(SYS_pread64, syscall(SYS_pread64, fd, buffer, LEN, AT) == LEN)                       \
    each(SYS_mmap, syscall(SYS_mmap, 0L, LEN, (long)PROT_READ, (long)(MAP_SHARED | MAP_POPULATE), (long)fd, AT) != -1)

#define DEFINE(name, call) static int way_##name(void) { return call; }
WAYS(DEFINE)
#define ENTRY(name, call) {#name, way_##name},
static const struct {
    const char *name;
    int (*way)(void);
} TABLE[] = {WAYS(ENTRY)};

int main(int argc, char **argv) {
    for (size_t at = 0; at < sizeof TABLE / sizeof *TABLE; at++) {
        if (argc < 3) {
            puts(TABLE[at].name);
        } else if (strcmp(argv[2], TABLE[at].name) == 0) {
            path = argv[1];
            fd = open(path, O_RDWR);
            assert(fd >= 0 && TABLE[at].way());
            return 0;
        }
    }
    return argc >= 3;
}
