// Uses a file of 4 MiB in the way that the second argument names. Without arguments, prints the names, with C for a way to close
// a descriptor, R to read at an offset, S to change the position, and E to execute a program or to end.
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1 << 20)
#define AT (2 * MIB)

ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t);

static const char *path;
static int fd;
static FILE *stream;
static char buffer[100000];
static char *arguments[] = {"true", NULL}, *environment[] = {NULL};
static struct iovec vector = {buffer, 10};
static off_t offset = AT;

static int another(void) { return open("/dev/null", O_RDWR); }
static int memory(void) { return memfd_create("copy", 0); }
static int from_pipe(void) {
    int ends[2];
    return pipe(ends) == 0 ? ends[1] : -1;
}
static long from(long moved) { return moved + offset - AT; }
static long spawns(void) {
    pid_t child;
    int error = posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environment);
    return error == 0 && waitpid(child, NULL, 0) == child ? close(fd) : -1;
}
static long closes_all(void) { closefrom(3); return 0; }
static long closes_streams(void) { return fcloseall() == 0 ? fclose(stream) : -1; }

// The kind, the name, the call, and its result.
#define WAYS(each)                                                                                         \
    each(C, close, close(fd), 0)                                                                           \
    each(C, fclose, fclose(stream), 0)                                                                     \
    each(C, fcloseall, closes_streams(), 0)                                                                \
    each(C, freopen, freopen("/dev/null", "r", stream) ? 0 : 1, 0)                                         \
    each(C, dup2, dup2(another(), fd), fd)                                                                 \
    each(C, dup3, dup3(another(), fd, O_CLOEXEC), fd)                                                      \
    each(C, close_range, close_range(3, ~0U, 0), 0)                                                        \
    each(C, close_range_of_a_copy, close_range(3, ~0U, CLOSE_RANGE_UNSHARE), 0)                            \
    each(C, closefrom, closes_all(), 0)                                                                    \
    each(C, posix_spawn, spawns(), 0)                                                                      \
    each(C, SYS_close, syscall(SYS_close, fd), 0)                                                          \
    each(C, SYS_close_range, syscall(SYS_close_range, 3, ~0U, 0), 0)                                       \
    each(C, SYS_dup3, syscall(SYS_dup3, another(), fd, 0), fd)                                             \
    each(R, pread, pread(fd, buffer, 10, AT), 10)                                                          \
    each(R, pread64, pread64(fd, buffer, 10, AT), 10)                                                      \
    each(R, __pread64_chk, __pread64_chk(fd, buffer, 10, AT, sizeof buffer), 10)                           \
    each(R, preadv, preadv(fd, &vector, 1, AT), 10)                                                        \
    each(R, preadv64, preadv64(fd, &vector, 1, AT), 10)                                                    \
    each(R, preadv2, preadv2(fd, &vector, 1, AT, 0), 10)                                                   \
    each(R, preadv64v2, preadv64v2(fd, &vector, 1, AT, 0), 10)                                             \
    each(R, sendfile, from(sendfile(memory(), fd, &offset, 10)), 20)                                       \
    each(R, sendfile64, from(sendfile64(memory(), fd, &offset, 10)), 20)                                   \
    each(R, splice, from(splice(fd, &offset, from_pipe(), NULL, 10, 0)), 20)                               \
    each(R, SYS_pread64, syscall(SYS_pread64, fd, buffer, 10L, (long)AT), 10)                              \
    each(R, SYS_preadv, syscall(SYS_preadv, fd, &vector, 1L, (long)AT, 0L), 10)                            \
    each(R, SYS_preadv2, syscall(SYS_preadv2, fd, &vector, 1L, (long)AT, 0L, 0L), 10)                      \
    each(R, SYS_sendfile, from(syscall(SYS_sendfile, memory(), fd, &offset, 10L)), 20)                     \
    each(R, SYS_splice, from(syscall(SYS_splice, fd, &offset, from_pipe(), NULL, 10L, 0L)), 20)            \
    each(S, lseek, lseek(fd, AT, SEEK_SET), AT)                                                            \
    each(S, lseek64, lseek64(fd, AT, SEEK_SET), AT)                                                        \
    each(S, SYS_lseek, syscall(SYS_lseek, fd, (long)AT, SEEK_SET), AT)                                     \
    each(E, execve, execve("/bin/true", arguments, environment), 0)                                        \
    each(E, execveat, execveat(AT_FDCWD, "/bin/true", arguments, environment, 0), 0)                       \
    each(E, execv, execv("/bin/true", arguments), 0)                                                       \
    each(E, execvp, execvp("true", arguments), 0)                                                          \
    each(E, execvpe, execvpe("true", arguments, environment), 0)                                           \
    each(E, fexecve, fexecve(open("/bin/true", O_RDONLY), arguments, environment), 0)                      \
    each(E, execl, execl("/bin/true", "true", "1", "2", "3", "4", "5", "6", "7", (char *)NULL), 0)         \
    each(E, execlp, execlp("true", "true", (char *)NULL), 0)                                               \
    each(E, execle, execle("/bin/true", "true", (char *)NULL, environment), 0)                             \
    each(E, SYS_execve, syscall(SYS_execve, "/bin/true", arguments, environment), 0)                       \
    each(E, exit, (exit(0), 0), 0)                                                                         \
    each(E, _exit, (_exit(0), 0), 0)                                                                       \
    each(E, _Exit, (_Exit(0), 0), 0)                                                                       \
    each(E, quick_exit, (quick_exit(0), 0), 0)                                                             \
    each(E, SYS_exit_group, syscall(SYS_exit_group, 0), 0)

#define DEFINE(kind, name, call, result) static int way_##name(void) { return (long)(call) == (result); }
WAYS(DEFINE)
#define ENTRY(kind, name, call, result) {#kind, #name, way_##name},
static const struct {
    const char *kind, *name;
    int (*way)(void);
} TABLE[] = {WAYS(ENTRY)};

int main(int argc, char **argv) {
    for (size_t at = 0; at < sizeof TABLE / sizeof *TABLE; at++) {
        if (argc < 3) {
            printf("%s %s\n", TABLE[at].kind, TABLE[at].name);
        } else if (strcmp(argv[2], TABLE[at].name) == 0) {
            path = argv[1];
            stream = strstr(argv[2], "fclose") || strstr(argv[2], "freopen") ? fopen(path, "r") : NULL;
            fd = stream ? fileno(stream) : open(path, O_RDONLY | O_CLOEXEC);
            assert(fd >= 0);
            // A read at an offset is the only one.
            if (TABLE[at].kind[0] != 'R')
                assert(read(fd, buffer, sizeof buffer) == sizeof buffer);
            assert(TABLE[at].way());
            // The end of the program is not noticed: it is the way that is learnt.
            raise(SIGKILL);
        }
    }
    return argc < 3 ? 0 : 2;
}
